"""From a task's name, preset and settings to the task, its segments and its tests."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from linbench.common.errors import PluginError, UserError, unknown
from linbench.common.settings import Settings
from linbench.common.task_io import IO
from linbench.experiments.curriculum import Segment
from linbench.experiments.loading import theirs
from linbench.experiments.pattern import split_task
from linbench.experiments.protocol import Protocol
from linbench.experiments.registry import SHIPPED, Entry, registry
from linbench.models.backbone import BackboneSettings
from linbench.tasks.base import Preset, Task
from linbench.tasks.random import MOST_IDS


def make_task(
    task: str, *, preset: str | None, settings: Mapping[str, Any] | None = None
) -> tuple[Task, Entry, Preset]:
    """A task by name, alone or as TASK/PRESET, with its entry and the preset it was made from; only
    `task.NAME` of the settings matter here.

    Raises UserError: as `plan`.
    """
    name, its = split_task(task)
    if None not in (its, preset) and its != preset:
        raise UserError(f"'{task}' and --preset {preset} name two presets; give one of the two.")
    entry = registry("task").find(name)
    cls: type[Task] = entry.cls
    chosen = _preset(cls, name, preset or its)
    try:
        return (
            _sensible(cls, {**chosen.task, **_by_room(settings or {}, cls)["task"]}, where="task"),
            entry,
            chosen,
        )
    except UserError:
        raise
    except Exception as error:
        if entry.source == SHIPPED:
            raise
        raise PluginError(f"task {task} cannot be used: {theirs(error)}.") from error


MOST_TOKENS = 1 << 18
"""Of a sequence: sixteen times the longest that is shipped. Draws of slots are exact in 64 bits up to there,
and chance is worked out in seconds."""


def _sensible(cls: type[Task], values: Mapping[str, Any], *, where: str) -> Task:
    """The task with these settings. Raises UserError: one that is not allowed, longer sequences or more ids
    than can be drawn, or but one thing to answer."""
    settings = cls.Settings.parse(values, where=where)
    for name, value in settings:
        if isinstance(value, int) and value > MOST_IDS and not name.endswith("seed"):
            raise UserError(f"{where}.{name} = {value}: it may be {MOST_IDS:,} at most.")
    task = cls(settings)
    if task.seq_len > MOST_TOKENS:
        raise UserError(
            f"with these settings a sequence of {task.name} has {task.seq_len:,} tokens; it may have"
            f" {MOST_TOKENS:,} at most."
        )
    if (ids := max(task.io.vocab_in or 0, task.io.vocab_out or 0)) > MOST_IDS:
        raise UserError(
            f"with these settings {task.name} has {ids:,} different tokens; it may have {MOST_IDS:,} at most."
        )
    if _chance(type(task), task.settings) >= 1:
        raise UserError(
            f"with these settings {task.name} has but one answer to choose from, so that a guess is always"
            " right; let there be more."
        )
    return task


@cache
def _chance(task: type[Task], settings: Settings) -> float:
    """Once for all the cells of a grid: of long sequences it takes some tenths of a second."""
    return task(settings).chance()


def _segments(task: Task, train: Sequence[Mapping[str, Any]]) -> tuple[Segment, ...]:
    """Of a mixture."""
    found = []
    for i, values in enumerate(train):
        examples = values.get("examples")
        if isinstance(examples, bool) or not isinstance(examples, int) or examples < 1:
            given = "says nothing of examples" if examples is None else f"has examples {examples}"
            raise UserError(f"train.{i} {given}; it needs how many there are, a whole number of at least 1.")
        found.append(
            Segment(
                _varied(
                    task,
                    {name: value for name, value in values.items() if name != "examples"},
                    where=f"train.{i}",
                ),
                examples,
            )
        )
    return tuple(found)


def _tests(task: Task, test: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> tuple[Task, ...]:
    longer = (
        _varied(task, {} if times == 1 else task.longer(times), where=f"test length {times}x")
        for times in lengths
    )
    return *(_varied(task, values, where=f"test.{i}") for i, values in enumerate(test)), *longer


def _varied(task: Task, values: Mapping[str, Any], *, where: str) -> Task:
    """The task with some settings changed."""
    changed = _sensible(type(task), {**task.settings.model_dump(exclude_unset=True), **values}, where=where)
    if changed.io != task.io:
        raise UserError(
            f"{where} has {_words(changed.io)} where the task has {_words(task.io)}; one model must be able"
            " to read and answer both."
        )
    return changed


def _words(io: IO) -> str:
    return ", ".join(
        f"{name} {value}" for name, value in io._asdict().items() if value not in (None, "place")
    )


def _by_room(settings: Mapping[str, Any], task: type[Task]) -> dict[str, dict[str, Any]]:
    rooms: dict[str, dict[str, Any]] = {"protocol": {}, "model": {}, "task": {}}
    for name, value in settings.items():
        room, _, rest = name.partition(".")
        if room not in rooms or not rest:
            of_models = [
                BackboneSettings,
                *(entry.cls.Settings for entry in registry("model").entries.values()),
            ]
            fields = {
                "protocol": [*Protocol.model_fields],
                "model": [field for each in of_models for field in each.model_fields],
                "task": [*task.Settings.model_fields],
            }
            bare = {field: f"{room}.{field}" for room in rooms for field in fields[room]}
            raise unknown("setting", name, [f"{room}.NAME" for room in rooms], short=bare)
        rooms[room][rest] = value
    return rooms


def _preset(cls: type[Task], task: str, preset: str | None) -> Preset:
    if preset is None:
        return next(iter(cls.presets.values()), Preset("defaults"))
    if preset not in cls.presets:
        raise unknown(f"preset of {task}", preset, cls.presets)
    return cls.presets[preset]
