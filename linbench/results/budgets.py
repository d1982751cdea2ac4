"""Scores at fixed budgets: what ladders had learned with so many times their base budget."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from linbench.results.comparison import Row
from linbench.results.open_ladders import ladder_key
from linbench.results.record import UNDERTRAINED, doublings_of, seed_of
from linbench.results.rungs import Rung
from linbench.results.schema.cells import CellResult, Ladder
from linbench.results.scores import accuracy, tokens_trained
from linbench.results.statistics import share_interval

CONFIDENCE = 0.95
"""The confidence of the intervals of means over seeds."""


@dataclass(frozen=True)
class BudgetScore:
    """The test accuracy of each seed of a model with a budget.

    A ladder that ended before counts with its last rung.
    """

    doublings: int
    """The number of times that the base budget was doubled."""
    tokens: int
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return fmean(self.accuracies)

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the mean by Student's t, within 0 and 1; None for fewer than two seeds."""
        return share_interval(self.accuracies, CONFIDENCE)


def has_budgets(rows: Iterable[Row]) -> bool:
    """Return whether any model was trained with several budgets, rung by rung."""
    return any(row.rungs for row in rows)


def budget_scores(rows: Sequence[Row]) -> list[list[BudgetScore]]:
    """Return the scores of each model at rising budgets, as far as all of its seeds have one."""
    ladders = [_ladders(row) for row in rows]
    every = [result for row in rows for result in (*row.rungs, *row.results)]
    numbers = sorted({doublings_of(result) for result in every})
    base = max(tokens_trained(result) for result in every if doublings_of(result) == numbers[0])
    return [_scores(own, numbers, base) for own in ladders]


def _ladders(row: Row) -> list[dict[int, CellResult]]:
    """Return the results of each seed by how many times the budget was doubled."""
    ladders: dict[int, dict[int, CellResult]] = {}
    for result in (*row.rungs, *row.results):
        ladders.setdefault(seed_of(result), {})[doublings_of(result)] = result
    return list(ladders.values())


def _scores(
    ladders: Sequence[Mapping[int, CellResult]], numbers: Sequence[int], base: int
) -> list[BudgetScore]:
    found: list[BudgetScore] = []
    for number in range(numbers[0], numbers[-1] + 1):
        results = [_with_budget(ladder, number) for ladder in ladders]
        scores = [None if result is None else accuracy(result) for result in results]
        known = [score for score in scores if score is not None]
        if len(known) < len(scores):
            break
        doublings = number - numbers[0]
        found.append(BudgetScore(doublings, base << doublings, tuple(known)))
    return found


def _with_budget(ladder: Mapping[int, CellResult], number: int) -> CellResult | None:
    """Return the result of a rung, or of the last one if the ladder ended before; None if it may go on."""
    last = ladder[max(ladder)]
    return ladder.get(number) or (last if "ladder" in last and doublings_of(last) < number else None)


def at_budget(results: Iterable[CellResult], doublings: int) -> list[CellResult]:
    """Return ladders as they would stand if their base budget were doubled so many times at most.

    Ladders that ended before stand as they ended, and those that have not come so far with their highest
    rung. What is no ladder is left out, but for the runs that chose learning rates.
    """
    ladders: dict[str, dict[int, CellResult]] = {}
    kept: list[CellResult] = []
    for result in results:
        if "ladder" in result or result["purpose"] == "rung":
            ladders.setdefault(ladder_key(result), {})[doublings_of(result)] = result
        elif result["purpose"] == "tuning":
            kept.append(result)
    for ladder in ladders.values():
        highest = min(ladder) + doublings
        rungs = [ladder[number] for number in sorted(ladder) if number <= highest]
        if highest in ladder or "ladder" in rungs[-1]:
            rungs[-1] = _as_last(rungs, ladder[max(ladder)], doublings + 1)
        kept += rungs
    return kept


def _as_last(rungs: Sequence[CellResult], highest: CellResult, most: int) -> CellResult:
    """Return the result of the last of some rungs as that of a ladder with no more of them.

    Args:
        rungs: of one ladder, the lowest first.
        highest: the highest rung of the ladder, which tells how the learning rate was chosen.
        most: the number of rungs at which the ladder is to end.
    """
    last = rungs[-1]
    if "ladder" in last:
        return {**last, "ladder": {**last["ladder"], "most": min(most, last["ladder"]["most"])}}
    summary: Ladder = {
        "ended": "cap",
        "most": most,
        "rungs": [{"tokens": tokens_trained(each), "accuracy": Rung.of(each).accuracy} for each in rungs],
    }
    added = [mark for mark in highest["marks"] if mark not in (UNDERTRAINED, *last["marks"])]
    found = {"purpose": "report", "search": highest["search"], "ladder": summary}
    return {**last, **found, "marks": [*last["marks"], *added]}  # type: ignore[typeddict-item]
