"""`linbench show`: one task or model in full."""

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from linbench.cli import completion
from linbench.cli.options import JsonOption, task_settings
from linbench.common import escape

BASELINES_OF = 256
"""Examples, here: enough for a first idea of what they score."""


class Kind(StrEnum):
    """What can be shown."""

    task = "task"
    model = "model"


def show(
    kind: Annotated[Kind, typer.Argument(metavar="task|model", help="What to show.")],
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.shown, help="A name, ./file.py:Class or package.module:Class."
        ),
    ],
    preset: Annotated[str | None, typer.Option(help="Of a task: the preset whose example is shown.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Of a task: a knob, task.NAME.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """A task (what it asks, its knobs, presets, chance level, how much of a test training saw, one example in
    words) or a model (its card and settings)."""
    from linbench.experiments.pattern import bare, split_task
    from linbench.experiments.registry import card, registry

    entry = registry(kind.value).find(split_task(name)[0] if kind is Kind.task else bare(name))
    found = _task(name, preset, set_ or []) if kind is Kind.task else _model(entry.cls)
    found = {"name": entry.name, "from": entry.source, "card": card(entry.cls), **found}
    if as_json:
        print(json.dumps(found))
        return
    lines = [f"{found.pop('name')} (from {found.pop('from')})\n\n{found.pop('card')}"]
    for title, value in found.items():
        lines.append(f"\n{title}")
        for line in value if isinstance(value, list) else [value]:
            lines.append("  " + ("  ".join(line) if isinstance(line, list) else str(line)))
    print(escape.visible("\n".join(lines)))


def _task(name: str, preset: str | None, pairs: list[str]) -> dict[str, Any]:
    import torch

    from linbench.experiments.plan_tasks import make_task
    from linbench.experiments.protocol import Protocol, default_protocol
    from linbench.verify.baselines import has_baselines
    from linbench.verify.split_overlap import collisions

    task, _, chosen = make_task(name, preset=preset, settings=task_settings(pairs, "show"))
    protocol = Protocol.parse({**default_protocol(), **chosen.protocol}, where="protocol")
    example = task.explain(task.sample(torch.arange(1), seed=0, split="train"), 0)
    presets = [
        [key, "(default)" if i == 0 else "", p.about, _pairs(p)]
        for i, (key, p) in enumerate(task.presets.items())
    ]
    slices = ", ".join(f"{name} (below {size})" for name, size in task.slice_sizes().items())
    return {
        "asks a memory to": _ASKS.get(getattr(task, "asks", ""), "what it does not say"),
        "knobs": _aligned(task.Settings.describe()),
        "presets": _aligned(presets),
        "size": (
            f"{task.seq_len} tokens,"
            f" {f'at most {task.answers} answers' if task.answers > 1 else 'one answer'} due"
        ),
        "scored": (
            f"chance {task.chance():.4f}, {task.bound} {task.optimum():.{task.optimum_places}f}; by"
            f" {slices or 'nothing else'}"
        ),
        "splits": str(collisions(task, protocol)),
        **({"baselines": _baselines(name, task)} if has_baselines(type(task)) else {}),
        "one example": example,
    }


_ASKS = {
    "remember": "remember: hold what it was told, and find it again",
    "overwrite": "overwrite: replace what it held",
    "filter": "filter: leave out what does not matter",
    "track": "track: follow a state that every token may change",
    "reason": "reason: go from one thing it holds to another",
    "learn": "learn: find a rule in its context and apply it",
}


def _baselines(name: str, task: Any) -> list[list[str]]:
    """What each scores on a few examples."""
    from linbench.verify.baselines import baselines

    found = {
        each: of.metrics for each, of in baselines(task, examples=BASELINES_OF).items() if each != task.bound
    }
    rows = [
        [each, *(f"{metric} {value:.3f}" for metric, value in metrics.items())]
        for each, metrics in found.items()
    ]
    return [
        *_aligned(rows),
        [f"`linbench untrained {name}` tells them by {' and '.join(task.slice_sizes())}"],
    ]


def _pairs(preset: Any) -> str:
    from linbench.common.settings import written

    rooms = (("task", preset.task), ("model", preset.model), ("protocol", preset.protocol))
    return " ".join(
        f"{room}.{name}={written(value)}" for room, values in rooms for name, value in values.items()
    )


def _model(cls: Any) -> dict[str, Any]:
    from linbench.experiments.registry import controlled, model_settings

    return {
        "settings (native defaults)": _aligned(model_settings(cls)) or ["none"],
        "the controlled form sets": controlled(cls) or ["there is none"],
    }


def _aligned(rows: Any) -> list[list[str]]:
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return [
        [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)] + [row[-1]] for row in rows
    ]
