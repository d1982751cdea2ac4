"""Tokens to learn before and after: in which cells seeds learn later, or not at all."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from linbench.results.learning_time import learning_time
from linbench.results.matching import Match
from linbench.results.schema.cells import CellResult
from linbench.results.survival import Median, Time, log_rank, median


class LearningPair(NamedTuple):
    """The tokens that seeds of a bimodal cell took to learn, on both sides.

    Attributes:
        name: the cell.
        baseline: the times before.
        candidate: the times after.
    """

    name: str
    baseline: Sequence[Time]
    candidate: Sequence[Time]

    @property
    def p(self) -> float:
        """The one-sided p of the log-rank test that the candidate learns later, or never."""
        return log_rank(self.candidate, self.baseline, alternative="later")

    @property
    def medians(self) -> tuple[Median, Median]:
        """The median before and after."""
        return median(self.baseline), median(self.candidate)

    @property
    def learned(self) -> tuple[int, int]:
        """The number of seeds that learned, before and after."""
        before, after = (sum(time.happened for time in side) for side in (self.baseline, self.candidate))
        return before, after


class LaterRow(NamedTuple):
    """A pair with its verdict.

    Attributes:
        pair: the tokens on both sides.
        adjusted_p: the p adjusted for all tests of the gate.
        red: whether seeds are shown to learn later.
    """

    pair: LearningPair
    adjusted_p: float
    red: bool


def learning_pair(match: Match, learned_from: float) -> LearningPair | None:
    """Return the tokens to learn of a cell, by seed; None if a side has no validation to tell them by.

    Args:
        match: the cell on both sides.
        learned_from: the accuracy from which on a seed has learned, in validation as in the test.
    """
    sides = [_times(row.results, match.seeds, learned_from) for _, row in match.sides]
    if not all(len(times) == len(match.seeds) for times in sides):
        return None
    return LearningPair(match.name, *sides)


def _times(results: Iterable[CellResult], seeds: Sequence[int], learned_from: float) -> list[Time]:
    own = [result for result in results if result["cell"]["seed"] in seeds]
    times = (learning_time(result, _enough(result, learned_from)) for result in own)
    return [time for time in times if time is not None]


def _enough(result: CellResult, learned_from: float) -> float:
    """Return the accuracy from which on a run has learned: never above the one at which training stops."""
    stop_at = result["cell"]["protocol"]["settings"].get("stop_at")
    return learned_from if stop_at is None else min(learned_from, stop_at)
