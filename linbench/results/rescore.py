"""Today's chance levels for results that an older linbench stored.

A score depends on chance, and the code that works out chance can change.
"""

from functools import cache
from statistics import fmean

from linbench.common.hashing import canonical
from linbench.experiments.registry import registry
from linbench.results.record import is_cell
from linbench.results.schema import Result
from linbench.results.schema.cells import CellResult
from linbench.tasks.base import Task

UNSCORED = "chance_as_stored"
"""The mark of a result whose chance level is the one it was stored with, since its task is not registered
here."""

MOST_ANSWERS = 1 << 26
"""The largest number of tokens times answers for which chance is worked out. Settings come from files, and no
file may keep a reader busy."""


def with_current_chance(result: Result) -> Result:
    """Return a result with the chance level that its task has today, of each of its tests too.

    A result that changes nothing comes back as the same object: one that was scored as the task is scored
    today (`Task.scoring`), or a benchmark's, which has no chance level. A result whose task is not registered
    here, or has another version or source, keeps what it was stored with; unless it says how it was scored,
    it is marked `UNSCORED`. Nothing is imported from a path that a result names.
    """
    return _rescored_cell(result) if is_cell(result) else result


def _rescored_cell(result: CellResult) -> CellResult:
    task = result["cell"]["task"]
    cls = _task(task["name"], task["version"], task["source"])
    known = result.get("scoring")
    if cls is None:
        return result if known is not None else _unscored(result)
    if known == cls.scoring:
        return result
    tests = task.get("test")
    settings = [test["settings"] for test in tests] if tests else [task["settings"]]
    levels = [_chance(cls, canonical(each)) for each in settings]
    found = [level for level in levels if level is not None]
    if len(found) < len(levels) or len(result.get("tests") or found) != len(found):
        return _unscored(result)
    if "validation" in result and max(result["validation"]["tests"]) >= len(found):
        return _unscored(result)
    return _with_chance(result, found, cls.scoring)


def _with_chance(result: CellResult, levels: list[float], scoring: int) -> CellResult:
    changed: CellResult = {**result, "chance": _rounded(fmean(levels)), "scoring": scoring}
    tests = result.get("tests")
    if tests:
        changed["tests"] = [{**test, "chance": level} for test, level in zip(tests, levels, strict=True)]
    validation = result.get("validation")
    if validation:
        chance = _rounded(fmean(levels[place] for place in validation["tests"]))
        changed["validation"] = {**validation, "chance": chance}
    return changed if _levels(changed) != _levels(result) else result


def _levels(result: CellResult) -> list[float]:
    """Return every chance level in a result, without the last digits, in which machines differ."""
    parts = [result, *result.get("tests", ()), *([result["validation"]] if "validation" in result else [])]
    return [_rounded(part["chance"]) for part in parts]


def _rounded(level: float) -> float:
    return float(f"{level:.12g}")


def _unscored(result: CellResult) -> CellResult:
    return result if UNSCORED in result["marks"] else {**result, "marks": [*result["marks"], UNSCORED]}


def _task(name: str, version: int, source: str | None) -> type[Task] | None:
    """Return the registered task of a name, if its version and source are the same."""
    entry = registry("task").entries.get(name)
    return entry.cls if entry and (entry.cls.version, entry.digest) == (version, source) else None


@cache
def _chance(cls: type[Task], settings: str) -> float | None:
    """Return the chance level of a task with settings (JSON); None if today's task refuses them."""
    try:
        task = cls(cls.Settings.model_validate_json(settings))
    except ValueError:  # what was allowed once, or never: a file says so
        return None
    return _rounded(task.chance()) if task.seq_len * task.answers <= MOST_ANSWERS else None
