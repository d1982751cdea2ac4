"""The task, its training mixture and its tests, made from a name, a preset and settings."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from linbench.common.errors import PluginError, UserError, unknown
from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.experiments.curriculum import Segment
from linbench.experiments.loading import describe_error
from linbench.experiments.pattern import split_task
from linbench.experiments.protocol import Protocol
from linbench.experiments.registry import Entry, registry
from linbench.models.backbone import BackboneSettings
from linbench.tasks.base import Preset, Task
from linbench.tasks.random import MOST_IDS


def make_task(
    task: str, *, preset: str | None, settings: Mapping[str, Any] | None = None
) -> tuple[Task, Entry, Preset]:
    """Build a task by its name, and return it with its registry entry and the preset it was made from.

    Args:
        task: a task's name, alone or as TASK/PRESET.
        preset: a preset of the task; None: that in the name, else the task's first.
        settings: settings by dotted names, of which only `task.NAME` matter here.

    Raises UserError: a name or setting that is not allowed; PluginError: a task that is not shipped failed.
    """
    name, in_name = split_task(task)
    if preset is not None and in_name is not None and in_name != preset:
        raise UserError(f"'{task}' and --preset {preset} name two presets; give one of the two.")
    entry = registry("task").find(name)
    cls: type[Task] = entry.cls
    chosen = _find_preset(cls, name, preset or in_name)
    try:
        own = settings_by_room(settings or {}, cls)["task"]
        return _build(cls, {**chosen.task, **own}, where="task"), entry, chosen
    except UserError:
        raise
    except Exception as error:
        if entry.shipped:
            raise
        raise PluginError(f"task {task} cannot be used: {describe_error(error)}.") from error


MOST_TOKENS = 1 << 18
"""The longest sequence a task may have: sixteen times the longest that is shipped.

Up to here draws of slots are exact in 64 bits, and chance is worked out in seconds.
"""


def _build(cls: type[Task], values: Mapping[str, Any], *, where: str) -> Task:
    """Build a task from its settings.

    Raises UserError: a setting that is not allowed, sequences or ids beyond what can be drawn, or only one
    possible answer.
    """
    settings = cls.Settings.parse(values, where=where)
    for name, value in settings:
        if isinstance(value, int) and value > MOST_IDS and not name.endswith("seed"):
            raise UserError(f"{where}.{name} must be at most {MOST_IDS:,}, not {value}.")
    task = cls(settings)
    if task.seq_len > MOST_TOKENS:
        raise UserError(
            f"with these settings a sequence of {task.name} has {task.seq_len:,} tokens; the limit is"
            f" {MOST_TOKENS:,}."
        )
    ids = max(task.io.vocab_in or 0, task.io.vocab_out or 0)
    if ids > MOST_IDS:
        raise UserError(
            f"with these settings {task.name} has {ids:,} different tokens; the limit is {MOST_IDS:,}."
        )
    if _chance(type(task), task.settings) >= 1:
        raise UserError(
            f"with these settings {task.name} has only one possible answer, so that every guess is right;"
            " choose settings with more answers."
        )
    return task


@cache
def _chance(task: type[Task], settings: Settings) -> float:
    """Return a task's chance level.

    It is cached for the cells of a grid: for long sequences it takes some tenths of a second.
    """
    return task(settings).chance()


def make_segments(task: Task, train: Sequence[Mapping[str, Any]]) -> tuple[Segment, ...]:
    """Return the segments of a training mixture.

    Args:
        task: the task whose settings a segment starts from.
        train: for each segment settings by bare names, and its number of `examples`.

    Raises UserError: a segment without a number of examples, or a setting that is not allowed.
    """
    segments = []
    for i, values in enumerate(train):
        examples = values.get("examples")
        if isinstance(examples, bool) or not isinstance(examples, int) or examples < 1:
            given = "is missing" if examples is None else f"is {examples}"
            raise UserError(f"train.{i}.examples {given}; it must be a whole number of at least 1.")
        own = {name: value for name, value in values.items() if name != "examples"}
        segments.append(Segment(_change(task, own, where=f"train.{i}"), examples))
    return tuple(segments)


def make_tests(task: Task, test: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> tuple[Task, ...]:
    """Return the tasks that are tested on: one for each item of `test`, then one for each of `lengths`.

    Raises UserError: a setting that is not allowed.
    """
    tests = [_change(task, values, where=f"test.{i}") for i, values in enumerate(test)]
    for times in lengths:
        longer = {} if times == 1 else task.longer(times)
        tests.append(_change(task, longer, where=f"test length {times}x"))
    return tuple(tests)


def _change(task: Task, values: Mapping[str, Any], *, where: str) -> Task:
    """Return the task with some settings changed. One model must be able to read and answer both."""
    changed = _build(type(task), {**task.settings.model_dump(exclude_unset=True), **values}, where=where)
    if changed.io != task.io:
        raise UserError(
            f"{where} has {_describe_io(changed.io)}, but the task has {_describe_io(task.io)}; one model"
            " must be able to read and answer both."
        )
    return changed


def _describe_io(io: IO) -> str:
    sizes = {name: value for name, value in io._asdict().items() if value not in (None, "place")}
    return ", ".join(f"{name} {value}" for name, value in sizes.items())


def settings_by_room(settings: Mapping[str, Any], task: type[Task]) -> dict[str, dict[str, Any]]:
    """Sort settings with dotted names into `protocol`, `model` and `task`, by their names behind the dot.

    Raises UserError: a name that begins with none of the three.
    """
    rooms: dict[str, dict[str, Any]] = {"protocol": {}, "model": {}, "task": {}}
    for name, value in settings.items():
        room, _, rest = name.partition(".")
        if room not in rooms or not rest:
            whole_names = [f"{room}.NAME" for room in rooms]
            raise unknown("setting", name, whole_names, short=_dotted_names(task))
        rooms[room][rest] = value
    return rooms


def _dotted_names(task: type[Task]) -> dict[str, str]:
    """Return the dotted name for each bare name of a setting."""
    mixers = [entry.cls.Settings for entry in registry("model").entries.values()]
    settings: list[tuple[str, type[Settings]]] = [
        ("protocol", Protocol),
        ("model", BackboneSettings),
        *(("model", of_mixer) for of_mixer in mixers),
        ("task", task.Settings),
    ]
    return {field: f"{room}.{field}" for room, each in settings for field in each.model_fields}


def _find_preset(cls: type[Task], task: str, preset: str | None) -> Preset:
    if preset is None:
        return next(iter(cls.presets.values()), Preset("defaults"))
    if preset not in cls.presets:
        raise unknown(f"preset of {task}", preset, cls.presets)
    return cls.presets[preset]
