"""Cells in a few words: what tells them apart from the others of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from linbench.cell import Cell


def varied(cells: Sequence[Cell]) -> list[str]:
    """The settings that are not the same in all cells of one task and model, by their dotted names; and always the seed."""
    alike: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in cells:
        alike.setdefault((cell.task_entry.name, cell.model.label), []).append(_settings(cell))
    names = dict.fromkeys(name for found in alike.values() for one in found for name in one)
    differ = [name for name in names if any(len({str(one.get(name)) for one in found}) > 1 for found in alike.values())]
    return [*(name for name in differ if name != "seed"), "seed"]


def named(cells: Sequence[Cell], names: Sequence[str]) -> str:
    """Cells of one task and model by these and what they have of `names`: `mqar quick deltanet model.d_model 64, seed 0 1 2`."""
    first, found = cells[0], [_settings(cell) for cell in cells]
    preset = f" {first.preset}" if first.preset else ""
    values = [f"{name} {' '.join(dict.fromkeys(str(one[name]) for one in found))}" for name in names if name in found[0]]
    return f"{first.task_entry.name}{preset} {first.model.label} {', '.join(values)}"


def told_apart(every: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each of these settings in words, by what is not the same in all of them: `seq_len 64 / kv_pairs 8`."""
    differ = [name for name in dict.fromkeys(name for one in every for name in one) if len({str(one.get(name)) for one in every}) > 1]
    return [" / ".join(f"{name} {one.get(name)}" for name in differ) for one in every]


def _settings(cell: Cell) -> dict[str, Any]:
    """All of a cell's settings, those of mixers where all layers are alike, what it trains and is tested on beside its task, and its seed."""
    rooms = {"task": cell.task.settings, "model": cell.model.backbone, "protocol": cell.protocol}
    found = {f"{room}.{name}": value for room, settings in rooms.items() for name, value in settings.model_dump().items()}
    of_mixers = [layer.settings.model_dump() for layer in cell.model.layers]
    alike = {f"model.{name}": value for name, value in of_mixers[0].items() if all(one.get(name) == value for one in of_mixers)}
    return found | alike | _mixture(cell) | {"seed": cell.seed}


def _mixture(cell: Cell) -> dict[str, str]:
    """By what its segments and tests do not share with the task, where there are any."""
    segments = [segment.task.settings.model_dump() | {"examples": segment.examples} for segment in cell.segments]
    tests = [test.settings.model_dump() for test in cell.tests]
    rooms = {"task.train": segments, "task.test": tests}
    return {name: ", ".join(told_apart([cell.task.settings.model_dump(), *these])[1:]) for name, these in rooms.items() if these}
