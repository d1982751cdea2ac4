"""Today's score of a result that an older linbench stored: of what a score depends on, chance is worked out
by code that can change."""

from functools import cache
from statistics import fmean
from typing import Any

from linbench.common.hashing import canonical
from linbench.experiments.registry import registry
from linbench.tasks.base import Task

UNSCORED = "chance_as_stored"
"""The mark of a result that has the chance of its own day, since its task is not here to tell today's."""

MOST_ANSWERS = 1 << 26
"""Tokens times answers of the longest example whose chance is worked out for a stored result: settings come
from a file, and none may keep a reader busy."""

Scored = dict[str, Any]
"""A result of a cell, as `linbench.results.store` reads it."""


def rescored(result: Scored) -> Scored:
    """Return the result with the chance that its task has today, of each of its tests too; the same object
    where that changes nothing.

    A result that was scored as the task is scored today (`Task.scoring`) is not looked at further. One whose
    task is not registered here, or has another version or source, keeps what it was stored with; unless it
    says how it was scored, it is marked `UNSCORED`. Nothing is imported from a path that a result names. What
    a benchmark measured has no chance and stays as it is.
    """
    if "chance" not in result:
        return result
    task = result["cell"]["task"]
    cls = _task(task["name"], task["version"], task["source"])
    known = result.get("scoring")
    if cls is None:
        return result if known is not None else _unscored(result)
    if known == cls.scoring:
        return result
    levels = [_chance(cls, canonical(test["settings"])) for test in task.get("test") or [task]]
    found = [level for level in levels if level is not None]
    if len(found) < len(levels) or len(result.get("tests") or found) != len(found):
        return _unscored(result)
    return _with_chance(result, found, cls.scoring)


def _with_chance(result: Scored, levels: list[float], scoring: int) -> Scored:
    tests = result.get("tests")
    now: Scored = {"chance": _rounded(fmean(levels))}
    if tests:
        now["tests"] = [{**test, "chance": level} for test, level in zip(tests, levels, strict=True)]
    return {**result, **now, "scoring": scoring} if _levels({**result, **now}) != _levels(result) else result


def _levels(result: Scored) -> list[float]:
    """Every level of chance in a result, without the last digits, in which machines differ."""
    return [_rounded(part["chance"]) for part in (result, *result.get("tests", ()))]


def _rounded(level: float) -> float:
    return float(f"{level:.12g}")


def _unscored(result: Scored) -> Scored:
    return result if UNSCORED in result["marks"] else {**result, "marks": [*result["marks"], UNSCORED]}


def _task(name: str, version: int, source: str | None) -> type[Task] | None:
    """The registered task of that name, if it is still what it was."""
    entry = registry("task").entries.get(name)
    return entry.cls if entry and (entry.cls.version, entry.digest) == (version, source) else None


@cache
def _chance(cls: type[Task], settings: str) -> float | None:
    """The chance of a task with these settings, as JSON; None where today's task refuses them."""
    try:
        task = cls(cls.Settings.model_validate_json(settings))
    except ValueError:  # what was allowed once, or never: a file says so
        return None
    return _rounded(task.chance()) if task.seq_len * task.answers <= MOST_ANSWERS else None
