"""The mark `undertrained`: it is known that the score of a result depends on how long it was trained.

It is judged where results are read, by rungs: the same cell with half the budget, a quarter, and so on. The
gain in the last fifth of a run, by which results of earlier versions were marked, says next to nothing of
what more training brings (decision 13), so such marks are not obeyed.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from linbench.common.hashing import digest
from linbench.common.settings import without
from linbench.results.record import UNDERTRAINED, seed_of
from linbench.results.rungs import Rung, ending
from linbench.results.schema.cells import CellResult
from linbench.results.scores import validation_levels


def judged(results: Iterable[CellResult]) -> list[CellResult]:
    """Return results, those to be reported marked as undertrained if rungs tell that they are.

    A ladder is undertrained if it ended at its largest budget, neither at the optimum nor flat. A result
    that is no ladder is if the same cell with half the budget is among the results, and the two with what
    lies below them make no ladder that has ended. Without one there is no mark, and nothing is known. Runs
    that are not reported have none.
    """
    every = list(results)
    lower = lower_budgets(every)
    return [
        mark(result, result["purpose"] == "report" and is_undertrained(result, lower.get(place, ())))
        for place, result in enumerate(every)
    ]


def is_undertrained(result: CellResult, lower: Sequence[CellResult]) -> bool:
    """Return whether a result is known to be undertrained.

    Args:
        result: the result.
        lower: the results of the same cell with half its budget, a quarter, and so on, the lowest first.
    """
    if "ladder" in result:
        return result["ladder"]["ended"] == "cap"
    if result["status"] != "ok" or not lower:
        return False
    rungs = [Rung.of(each) for each in (*lower, result)]
    stop, reached = result["cell"]["protocol"]["settings"].get("stop_at"), rungs[-1].accuracy
    if stop and reached is not None and reached >= stop:  # it was not meant to learn more
        return False
    return ending(rungs, validation_levels(result), most=len(rungs)) == "cap"


def mark(result: CellResult, undertrained: bool) -> CellResult:
    """Return a result with the mark `undertrained`, or without it."""
    if undertrained is (UNDERTRAINED in result["marks"]):
        return result
    others = [name for name in result["marks"] if name != UNDERTRAINED]
    return {**result, "marks": [UNDERTRAINED, *others] if undertrained else others}


class _Budget(NamedTuple):
    """The budget of a result: the setting that gives it, and its number."""

    setting: str
    number: int

    @classmethod
    def of(cls, result: CellResult) -> "_Budget":
        settings = result["cell"]["protocol"]["settings"]
        doublings = settings.get("doublings", 0)
        if epochs := settings.get("epochs"):
            return cls("epochs", epochs << doublings)
        return cls("tokens", settings["tokens"] << doublings)

    @property
    def half(self) -> "_Budget | None":
        return None if self.number % 2 else self._replace(number=self.number // 2)


def lower_budgets(results: Sequence[CellResult]) -> dict[int, list[CellResult]]:
    """Return the results of the same cell with half the budget, a quarter, ... by the places of results."""
    alike: dict[tuple[object, ...], dict[int, _Budget]] = {}
    for place, result in enumerate(results):
        if result["status"] == "ok" and result["curve"]:
            alike.setdefault(_hint(result), {})[place] = _Budget.of(result)
    found: dict[int, list[CellResult]] = {}
    for budgets in alike.values():
        if len(set(budgets.values())) == 1:
            continue
        keys = {place: _but_budget(results[place], budget.setting) for place, budget in budgets.items()}
        known = {(keys[place], budget): results[place] for place, budget in budgets.items()}
        for place, budget in budgets.items():
            half = budget.half
            while half and (lower := known.get((keys[place], half))):
                found.setdefault(place, []).insert(0, lower)
                half = half.half
    return found


def _hint(result: CellResult) -> tuple[object, ...]:
    """Return what the same cells have in common and is quick to compare, since a digest is not."""
    cell = result["cell"]
    settings = cell["protocol"]["settings"]
    return cell["task"]["name"], result["label"], cell["model"]["form"], seed_of(result), settings["lr"]


def _but_budget(result: CellResult, setting: str) -> str:
    """Return a digest of all that decides a result but its budget."""
    cell = result["cell"]
    settings = without(cell["protocol"]["settings"], {setting, "doublings"})
    return digest({**cell, "protocol": [cell["protocol"]["version"], settings], "label": result["label"]})
