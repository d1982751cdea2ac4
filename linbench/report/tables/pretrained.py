"""Tables of language models that were asked a task: accuracy, kinds of errors, and bytes of state."""

import math
from collections.abc import Sequence
from typing import Any

from linbench.common.files import file_name
from linbench.common.hashing import canonical, digest
from linbench.common.text import pluralize
from linbench.report.style.wording import commits
from linbench.report.table import NO_VALUE, Cell, Column, Table
from linbench.report.tables import TableKind
from linbench.report.tables.comparison import is_shown
from linbench.results.schema.pretrained import PretrainedIdentity, PretrainedResult
from linbench.results.scores import above_chance

_HEAD = ("model", "accuracy", "chance", "scaled")

_NOTE = (
    "These are models of transformers that were trained already. Each id of the task is written as one token"
    " of the model, and an answer is the likeliest of the ids that the task can answer with ('choices')."
    " Chance is the accuracy of the best blind guess; a model that guesses among all choices can be below it."
    " Scaled is (accuracy - chance) / (1 - chance), and nll is in nats over the choices. The bytes are what"
    " the model keeps for one sequence after a prompt of so many tokens: recurrent bytes are as many at any"
    " length, cache bytes grow with it."
)

_ANSWERS = {
    "hidden": "The asked example is the sequence that linbench trains on.",
    "written": "The asked example holds its earlier answers, each right after the token where it is due.",
}


def pretrained_tables(results: Sequence[PretrainedResult]) -> list[Table]:
    """Return a table for each question, with a row for each model."""
    groups: dict[str, list[PretrainedResult]] = {}
    for result in results:
        groups.setdefault(_question(result["probe"]), []).append(result)
    return [_table(sorted(group, key=_order)) for _, group in sorted(groups.items())]


TABLES = TableKind("language models", lambda data: pretrained_tables(data.pretrained), order=30)


def _question(asked: PretrainedIdentity) -> str:
    """Return what all rows of a table have in common."""
    common = ("version", "task", "shots", "answers", "seed", "examples")
    return canonical(
        [asked["task"]["name"], {name: value for name, value in asked.items() if name in common}]
    )


def _order(result: PretrainedResult) -> tuple[str, str, str]:
    return result["label"], result["probe"]["precision"], result["id"]


def _table(results: Sequence[PretrainedResult]) -> Table:
    first = results[0]
    asked = first["probe"]
    settings = ", ".join(f"{name} {value}" for name, value in sorted(asked["task"]["settings"].items()))
    examples = f"{asked['examples']:,} test examples of seed {asked['seed']}"
    name = " ".join(part for part in (asked["task"]["name"], first["preset"]) if part)
    title = f"Language models on {name}, {pluralize(asked['shots'], 'shot')}, answers {asked['answers']}"
    rows = [_row(result) for result in results]
    names = list(dict.fromkeys(column for row in rows for column in row))
    slug = file_name(f"probe {title.partition(' on ')[2]} {digest(_question(asked))[:8]}")
    return Table(
        title,
        tuple(Column(column, numeric=column not in ("model", "precision")) for column in names),
        tuple(tuple(row.get(column, NO_VALUE) for column in names) for row in rows),
        f"{settings}; {examples}. {_ANSWERS[asked['answers']]} {_NOTE} Code: {commits(results)}.",
        slug,
        appendix=_by_slices(results, title, slug),
    )


def _row(result: PretrainedResult) -> dict[str, Cell]:
    metrics, state = result["metrics"], result["state"]
    accuracy, chance = metrics["accuracy"], result["chance"]
    numbers = {"accuracy": accuracy, "chance": chance, "scaled": above_chance(accuracy, chance)}
    numbers |= {name: value for name, value in metrics.items() if name not in _HEAD and is_shown(name)}
    cells = {"model": Cell(result["label"])}
    cells |= {name: Cell(f"{value:.3f}", value) for name, value in numbers.items()}
    counts = {"parameters": result["parameters"], "choices": result["choices"]}
    if state is not None:
        counts |= {
            "recurrent bytes": state["recurrent"],
            "cache bytes": state["cache"],
            "after tokens": state["tokens"],
        }
    cells |= {name: Cell(f"{count:,}", count) for name, count in counts.items()}
    return cells | {"precision": Cell(result["probe"]["precision"])}


def _by_slices(results: Sequence[PretrainedResult], title: str, slug: str) -> dict[str, Table]:
    """Return a table of accuracy for each slice, in the bins that figures have, by their headings."""
    from linbench.report.style.lines import bin_edges, binned  # late: drawing takes a second to load

    tables = {}
    for name in dict.fromkeys(name for result in results for name in result["slices"]):
        found: list[tuple[str, dict[str, Any]]] = [
            (result["label"], dict(part))
            for result in results
            if (part := result["slices"].get(name, {})).get("at") and "accuracy" in part
        ]
        edges = bin_edges([part for _, part in found])
        if not edges:
            continue
        lows = [min(min(part["at"]) for _, part in found), *(edge + 1 for edge in edges)]
        bins = [
            str(low) if low >= high else f"{low} to {high}" for low, high in zip(lows, edges, strict=False)
        ]
        rows = tuple(
            (Cell(label), *(_share(value) for _, value in binned(part, edges))) for label, part in found
        )
        tables[f"Accuracy by {name}"] = Table(
            f"{title}, accuracy by {name}",
            (Column("model", numeric=False), *map(Column, bins)),
            rows,
            slug=f"{slug}-{file_name(name)}",
        )
    return tables


def _share(value: float) -> Cell:
    return NO_VALUE if math.isnan(value) else Cell(f"{value:.3f}", value)
