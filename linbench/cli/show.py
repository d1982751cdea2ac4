"""`linbench show`: one task, model or system in full."""

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from linbench.cli import completion
from linbench.cli.options import JsonOption, task_settings
from linbench.common import escape

BASELINES_OF = 256
"""Number of examples that baselines are scored on here: enough for a first idea."""


LONGEST_TYPE = 34
"""Characters up to which a setting's type stands in the column of types: the longest but one that ships."""


class Kind(StrEnum):
    """The kinds of thing that can be shown."""

    task = "task"
    model = "model"
    system = "system"


def show(
    kind: Annotated[Kind, typer.Argument(metavar="task|model|system", help="What to show.")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            autocompletion=completion.shown,
            help="A name, ./file.py:Class or package.module:Class.",
        ),
    ],
    preset: Annotated[str | None, typer.Option(help="For a task: the preset whose example is shown.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="For a task: change a setting, task.NAME."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show one task, model or system in full.

    For a task: the skill it tests, its settings, presets, chance level, overlap of the splits, and one
    example in words. For a model: its description, what it is as an online learner, its settings,
    and those of the model around it. For a system: its layers, published settings, and what is left out.
    """
    parts = _found(kind, name, preset, set_ or [])
    if as_json:
        print(json.dumps(parts))
        return
    lines = [f"{parts.pop('name')} (from {parts.pop('from')})\n\n{parts.pop('card')}"]
    for title, value in parts.items():
        lines.append(f"\n{title}")
        for line in value if isinstance(value, list) else [value]:
            lines.append("  " + ("  ".join(line) if isinstance(line, list) else str(line)))
    print(escape.visible("\n".join(lines)))


def _found(kind: Kind, name: str, preset: str | None, pairs: list[str]) -> dict[str, Any]:
    """Return what is shown, by titles. A system's name stands for a model's, too."""
    from linbench.experiments.pattern import bare, split_task
    from linbench.experiments.registry import card, registry
    from linbench.experiments.system import find, shipped

    if kind is Kind.system or (kind is Kind.model and bare(name) in shipped()):
        return {"name": bare(name), **_system(find(bare(name)))}
    entry = registry(kind.value).find(split_task(name)[0] if kind is Kind.task else bare(name))
    parts = _task(name, preset, pairs) if kind is Kind.task else _model(entry.cls)
    return {"name": entry.spelling, "from": entry.source, "card": card(entry.cls), **parts}


def _system(system: Any) -> dict[str, Any]:
    from linbench.common.settings import format_setting

    native = [
        [model, ", ".join(f"{name} = {format_setting(value)}" for name, value in settings.items())]
        for model, settings in system.native.items()
    ]
    return {
        "from": f"{system.cited}, {system.year}",
        "card": f"{system.title}: {system.about}",
        "layers": system.pattern,
        "settings of the native form": _aligned(native) or ["those of its layers"],
        "left out or changed": system.differs,
    }


def _task(name: str, preset: str | None, pairs: list[str]) -> dict[str, Any]:
    import torch

    from linbench.experiments.plan_tasks import make_task
    from linbench.experiments.protocol import Protocol, default_protocol
    from linbench.verify.baselines import has_baselines
    from linbench.verify.split_overlap import collisions

    task, _, chosen_preset = make_task(name, preset=preset, settings=task_settings(pairs, "show"))
    protocol = Protocol.parse({**default_protocol(), **chosen_preset.protocol}, where="protocol")
    example = task.explain(task.sample(torch.arange(1), seed=0, split="train"), 0)
    presets = [
        [key, "(default)" if i == 0 else "", p.about, _pairs(p)]
        for i, (key, p) in enumerate(task.presets.items())
    ]
    slices = ", ".join(f"{name} (below {size})" for name, size in task.slice_sizes().items())
    return {
        "skill": _SKILLS.get(getattr(task, "skill", ""), "not declared"),
        "settings": _aligned(task.Settings.describe()),
        "presets": _aligned(presets),
        "size": (
            f"{task.seq_len} tokens,"
            f" {f'at most {task.answers} answers' if task.answers > 1 else 'one answer'}"
        ),
        "scored": (
            f"chance {task.chance():.4f}, {task.optimum_kind} {task.optimum():.{task.optimum_places}f};"
            f" slices: {slices or 'none'}"
        ),
        "splits": str(collisions(task, protocol)),
        **({"baselines": _baselines(name, task)} if has_baselines(type(task)) else {}),
        **({"shallow baselines": shallow} if (shallow := _shallow(name, task)) else {}),
        "one example": example,
    }


_SKILLS = {
    "remember": "remember: store what was shown and retrieve it",
    "overwrite": "overwrite: replace a stored value",
    "filter": "filter: ignore what does not matter",
    "track": "track: follow a state that any token may change",
    "reason": "reason: chain several stored facts",
    "learn": "learn: infer a rule from the context and apply it",
}


def _baselines(name: str, task: Any) -> list[list[str]]:
    """Return a row for each baseline, scored on a few examples."""
    from linbench.verify.baselines import baselines

    rows = []
    for baseline, scores in baselines(task, examples=BASELINES_OF).items():
        if baseline != task.optimum_kind:
            rows.append([baseline, *(f"{metric} {value:.3f}" for metric, value in scores.metrics.items())])
    by = " and ".join(task.slice_sizes())
    return [*_aligned(rows), [f"`linbench untrained {name}` shows them by {by}"]]


def _shallow(name: str, task: Any) -> list[list[str]]:
    """Return a row for each shallow baseline as it was measured, and what that says; none for vectors."""
    from linbench.experiments.floors import stored_floor, task_key
    from linbench.verify.shallow import BASELINES, applies

    if not applies(task):
        return []
    floor = stored_floor(task_key(task))
    if floor is None:
        return [[f"not measured with these settings; `linbench untrained {name} --shallow` measures them"]]
    rows = [
        [
            baseline,
            f"{accuracy:.3f}",
            BASELINES[baseline] + (" (this is what the task asks)" if baseline in floor.solved_by else ""),
        ]
        for baseline, accuracy in floor.accuracy.items()
    ]
    return [*_aligned(rows), [floor.describe()]]


def _pairs(preset: Any) -> str:
    from linbench.common.settings import format_setting

    rooms = {"task": preset.task, "model": preset.model, "protocol": preset.protocol}
    pairs = []
    for room, values in rooms.items():
        pairs += [f"{room}.{name}={format_setting(value)}" for name, value in values.items()]
    return " ".join(pairs)


def _model(cls: Any) -> dict[str, Any]:
    from linbench.experiments.registry import controlled, model_settings
    from linbench.models.backbone import BackboneSettings

    learner = getattr(cls, "learner", None)
    return {
        **({"as an online learner": _aligned(learner._asdict().items())} if learner else {}),
        "settings (native defaults)": _aligned(_short_types(model_settings(cls))) or ["none"],
        "settings of what is around it": _aligned(_short_types(BackboneSettings.describe())),
        "the controlled form sets": controlled(cls) or ["no controlled form"],
    }


def _short_types(rows: Any) -> list[tuple[str, str, str, str]]:
    """Move long lists of choices from the column of types to the end of the description."""
    short = []
    for name, kind, default, about in rows:
        if len(kind) > LONGEST_TYPE:
            kind, about = "choice", f"{about}. Choices: {kind}"
        short.append((name, kind, default, about))
    return short


def _aligned(rows: Any) -> list[list[str]]:
    """Pad all columns but the last to one width."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    aligned = []
    for *cells, last in texts:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        aligned.append([*padded, last])
    return aligned
