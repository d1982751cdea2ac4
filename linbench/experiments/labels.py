"""Cells in a few words: what tells them apart from the others of a run."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from linbench.experiments.cell import Cell


class Names(NamedTuple):
    """What cells of a run are told apart by. presets: tasks of which every cell is a preset, which then says
    all that belongs to it. settings: by their dotted names, the seed last."""

    presets: frozenset[str]
    settings: tuple[str, ...]


def varied(cells: Sequence[Cell], *, but: Collection[str] = ()) -> Names:
    """As few settings as tell cells of one task, preset and model apart, none of `but`; and always the
    seed."""
    of_task: dict[str, set[str | None]] = {}
    for cell in cells:
        of_task.setdefault(cell.task_entry.name, set()).add(cell.preset)
    presets = frozenset(task for task, found in of_task.items() if None not in found)
    alike: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for cell in cells:
        task = cell.task_entry.name
        alike.setdefault((task, cell.preset if task in presets else None, cell.model.label), []).append(
            all_settings(cell)
        )
    return Names(presets, (*fewest(alike.values(), but={*but, "seed"}), "seed"))


def named(cells: Sequence[Cell], names: Names) -> str:
    """Cells of one task and model by these and what they have of `names`: `mqar quick deltanet model.d_model
    64, seed 0 1 2`."""
    first, found = cells[0], [all_settings(cell) for cell in cells]
    task = first.task_entry.name
    values = [
        f"{name} {' '.join(dict.fromkeys(str(one[name]) for one in found))}"
        for name in names.settings
        if name in found[0]
    ]
    return (
        f"{task}{f' {first.preset}' if task in names.presets else ''} {first.model.label} {', '.join(values)}"
    )


def fewest(
    groups: Iterable[Sequence[Mapping[str, Any]]], *, but: Collection[str] = (), last: Sequence[str] = ()
) -> list[str]:
    """Return names of settings, in their order, each of which tells apart in some group what those before it
    leave alike.

    Args:
        but: names that are left out.
        last: names that are looked at after all others, wherever they stand.
    """
    groups = list(groups)
    kept: list[str] = []
    alike = [[0] * len(group) for group in groups]
    names = dict.fromkeys(name for group in groups for one in group for name in one if name not in but)
    for name in (*(name for name in names if name not in last), *(name for name in last if name in names)):
        finer = [
            _numbered([(number, str(one.get(name))) for number, one in zip(numbers, group, strict=True)])
            for numbers, group in zip(alike, groups, strict=True)
        ]
        if finer != alike:
            kept.append(name)
            alike = finer
    return kept


def labelled(labels: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each label, with as few of its settings as tell those apart that share one."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for label, own in zip(labels, settings, strict=True):
        alike.setdefault(label, []).append(own)
    told = {label: fewest([twins]) for label, twins in alike.items()}
    said = [
        ", ".join(f"{name} {own[name]}" for name in told[label] if name in own)
        for label, own in zip(labels, settings, strict=True)
    ]
    return [f"{label} ({words})" if words else label for label, words in zip(labels, said, strict=True)]


def _numbered(values: Sequence[Any]) -> list[int]:
    """Equal numbers for what is equal, counted from 0 as they come."""
    numbers = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return [numbers[value] for value in values]


def told_apart(every: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each of these settings in words, by what it has of all that is not the same in all of them: `seq_len 64
    / kv_pairs 8`."""
    differ = [
        name
        for name in dict.fromkeys(name for one in every for name in one)
        if len({str(one.get(name)) for one in every}) > 1
    ]
    return [" / ".join(f"{name} {one[name]}" for name in differ if name in one) for one in every]


def all_settings(cell: Cell) -> dict[str, Any]:
    """All of a cell's settings, those of mixers where all layers are alike, what it trains and is tested on
    beside its task, and its seed."""
    rooms = {"task": cell.task.settings, "model": cell.model.backbone, "protocol": cell.protocol}
    found = {
        f"{room}.{name}": value
        for room, settings in rooms.items()
        for name, value in settings.model_dump().items()
    }
    of_mixers = [layer.settings.model_dump() for layer in cell.model.layers]
    alike = {
        f"model.{name}": value
        for name, value in of_mixers[0].items()
        if all(one.get(name) == value for one in of_mixers)
    }
    return found | alike | _mixture(cell) | {"seed": cell.seed}


def _mixture(cell: Cell) -> dict[str, str]:
    segments = [
        segment.task.settings.model_dump() | {"examples": segment.examples} for segment in cell.segments
    ]
    rooms = mixture(
        cell.task.settings.model_dump(), segments, [test.settings.model_dump() for test in cell.tests]
    )
    return {f"task.{name}": words for name, words in rooms.items()}


def mixture(
    task: Mapping[str, Any], train: Sequence[Mapping[str, Any]], test: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """What is trained and tested on beside a task, where there is any, by what it does not share with the
    task's settings."""
    return {
        name: ", ".join(told_apart([task, *these])[1:])
        for name, these in (("train", train), ("test", test))
        if these
    }
