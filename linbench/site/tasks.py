"""The page of a task: what it asks, an example in words, and which variants learn it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from linbench.common.text import pluralize
from linbench.experiments.floors import stored_floor, task_key
from linbench.experiments.plan_tasks import make_task
from linbench.experiments.registry import card
from linbench.report.style.wording import training
from linbench.report.table import ABSENT
from linbench.report.tables.overview import IN_DOUBT, accuracy
from linbench.results.comparison import Comparison, Row
from linbench.results.profile import FORM
from linbench.results.scores import LEARNED
from linbench.site.findings import Findings, page_of, tasks
from linbench.site.render import Made, grid, link, page, paragraphs

SHOWN = ("controlled", "native")
"""The forms of which the comparison with most variants is shown, in this order."""


def task_pages(findings: Findings) -> Iterator[Made]:
    """Yield the list of tasks, and the page of each task that comes with linbench."""
    entries = tasks()
    order = sorted(entries, key=lambda name: (entries[name].cls.skill, name))
    found = {
        name: sorted(
            (one for one in findings.comparisons if one.task == name),
            key=lambda one: (one.form, not one.until_learned, -len(one.rows), one.title),
        )
        for name in order
    }
    rows = [
        [
            link(name, f"{name}.md"),
            entries[name].cls.skill,
            card(entries[name].cls).partition("\n")[0],
            str(len(_labels(found[name]))) if found[name] else ABSENT,
        ]
        for name in order
    ]
    table = grid(["task", "skill", "question", "models trained"], rows, numbers=["models trained"])
    lead = "Every task that comes with linbench. A dash means that no model was trained on it."
    yield Made(page("tasks/index.md", "index", title="Tasks", lead=lead, choose="skill", table=table))
    for name in order:
        yield Made(page(f"tasks/{name}.md", "task", **_values(name, entries[name].cls, found[name])))


def _values(name: str, cls: Any, found: Sequence[Comparison]) -> Mapping[str, Any]:
    task, *_ = make_task(name, preset=None, settings={})
    floor = stored_floor(task_key(task))
    shown = [next((one for one in found if one.form == form), None) for form in SHOWN]
    return {
        "name": name,
        "card": paragraphs(card(cls)),
        "facts": grid(
            ["property", "value"],
            [
                ["skill", cls.skill],
                ["size", f"{task.seq_len} tokens, at most {pluralize(task.answers, 'answer')}"],
                ["chance", f"{task.chance():.4f}"],
                [f"{task.optimum_kind} of the exact solver", f"{task.optimum():.{task.optimum_places}f}"],
                ["floor of shallow baselines", floor.describe() if floor else "not measured"],
                ["presets", ", ".join(cls.presets) or "none"],
            ],
        ),
        "example": task.explain(task.sample(torch.arange(1), seed=0, split="train"), 0),
        "shown": [
            {
                "form": one.form,
                "controlled": one.form == FORM,
                "table": _learners(one),
                "setting": training(one),
            }
            for one in shown
            if one
        ],
        "others": grid(COLUMNS, [_line(one) for one in found if one not in shown], numbers=COLUMNS[3:])
        if len(found) > sum(one is not None for one in shown)
        else "",
        "doubt": IN_DOUBT,
    }


def _labels(found: Sequence[Comparison]) -> set[str]:
    return {row.results[0]["label"] for one in found for row in one.rows}


def _learners(comparison: Comparison) -> str:
    """Return the models of a comparison, the highest mean first, with the seeds that have learned."""
    rows = sorted(comparison.rows, key=lambda row: (-1.0 if row.mean is None else -row.mean, row.label))
    columns = ["model", "accuracy", f"seeds at {LEARNED:g} or more", "chance"]
    return grid(columns, [_row(row) for row in rows], numbers=columns[1:])


def _row(row: Row) -> list[str]:
    place = page_of(row.results[0]["label"])
    learned = sum(one >= LEARNED for one in row.accuracies)
    return [
        link(row.label, f"../{place}" if place else ""),
        accuracy(row),
        f"{learned} of {len(row.results)}",
        f"{row.results[0]['chance']:.3f}",
    ]


COLUMNS = ["setting", "form", "device", "models", "best accuracy"]
"""The columns of the comparisons that are not shown in full."""


def _line(comparison: Comparison) -> list[str]:
    best = max(
        (row for row in comparison.rows if row.mean is not None),
        key=lambda row: row.mean or 0.0,
        default=None,
    )
    said = f"{accuracy(best)} ({best.label})" if best else ABSENT
    return [comparison.title, comparison.form, comparison.device, str(len(comparison.rows)), said]
