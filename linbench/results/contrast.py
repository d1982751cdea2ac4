"""The verdict on a variant beside another: on accuracy, and on the tokens that it takes to learn.

One kind of test answers both: the exact permutation test, of means and of log-rank scores. All verdicts of a
command are corrected together, by Holm's method.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import NormalDist, variance
from typing import NamedTuple

from linbench.results.permutation import permutation_p, seeds_to_differ
from linbench.results.power import MOST_SEEDS
from linbench.results.statistics import Difference, welch
from linbench.results.survival import Median, Time, log_rank, log_rank_scores, median

ALPHA = 0.05
"""The probability, at most, that any verdict of a command is false."""

MARGIN = 0.01
"""The difference in accuracy that does not matter: one point, by convention."""

POWER = 0.8
"""The probability with which the further seeds that are named would decide, by convention."""


class Outcome(StrEnum):
    """The outcome of a comparison: what is shown of a variant beside the first."""

    better = "better"
    worse = "worse"
    sooner = "sooner"
    later = "later"
    undecided = "no difference shown"


class Judgement(NamedTuple):
    """An outcome after the correction.

    Attributes:
        outcome: what is shown.
        p: by Holm's method over all verdicts of the command.
        further: the further seeds of each variant that would decide, if they are like these; 0 if it is
            decided, None if it takes more than `MOST_SEEDS` in all.
    """

    outcome: Outcome
    p: float
    further: int | None


class AccuracyContrast(NamedTuple):
    """The accuracies of a variant and of the first, a value for each seed."""

    own: Sequence[float]
    first: Sequence[float]

    @property
    def difference(self) -> Difference | None:
        """The difference of means with its own interval, by Welch's t; None with fewer than two seeds."""
        return welch(self.own, self.first) if min(len(self.own), len(self.first)) > 1 else None

    @property
    def p(self) -> float:
        """The p before the correction."""
        return permutation_p(self.own, self.first)

    @property
    def within_margin(self) -> bool:
        """True if the interval of the difference lies within `MARGIN` on both sides of zero."""
        found = self.difference
        return found is not None and found.low >= -MARGIN and found.high <= MARGIN

    def judge(self, p: float, tests: int) -> Judgement:
        """Return the outcome, with p by Holm's method over so many tests."""
        if p <= ALPHA:
            ahead = math.fsum(self.own) / len(self.own) > math.fsum(self.first) / len(self.first)
            return Judgement(Outcome.better if ahead else Outcome.worse, p, 0)
        return Judgement(Outcome.undecided, p, self._further(tests))

    def _further(self, tests: int) -> int | None:
        """Return the further seeds that would show a difference, or that it is less than `MARGIN`."""
        now, least = min(len(self.own), len(self.first)), seeds_to_differ(tests, alpha=ALPHA)
        found = self.difference
        if found is None:
            return max(least - now, 1)
        if self.within_margin and now >= least:
            return 0
        spread = variance(self.own) + variance(self.first)
        apart, room = abs(found.mean), MARGIN - abs(found.mean)
        to_differ = (_reach(ALPHA / tests) / apart) ** 2 * spread if apart else math.inf
        to_agree = (_reach(ALPHA) / room) ** 2 * spread if room > 0 else math.inf
        return _further(now, max(least, min(to_differ, to_agree)))


class LearningContrast(NamedTuple):
    """The tokens that the seeds of a variant and of the first took to learn."""

    own: Sequence[Time]
    first: Sequence[Time]

    @property
    def p(self) -> float:
        """The p of the log-rank test before the correction."""
        return log_rank(self.own, self.first)

    @property
    def medians(self) -> tuple[Median, Median]:
        """The medians of both."""
        return median(self.own), median(self.first)

    def judge(self, p: float, tests: int) -> Judgement:
        """Return the outcome, with p by Holm's method over so many tests."""
        if p <= ALPHA:
            return Judgement(Outcome.sooner if self._learns_sooner() else Outcome.later, p, 0)
        now, least = min(len(self.own), len(self.first)), seeds_to_differ(tests, alpha=ALPHA)
        shown = NormalDist().inv_cdf(1 - self.p / 2) if self.p < 1 else 0.0
        # a test's distance from zero grows with the root of the seeds
        needed = now * (_reach(ALPHA / tests) / shown) ** 2 if shown else math.inf
        return Judgement(Outcome.undecided, p, _further(now, max(least, needed)))

    def _learns_sooner(self) -> bool:
        """Return whether more of the variant's seeds learned than expected if both were alike."""
        scores = log_rank_scores([*self.own, *self.first])
        return math.fsum(scores[: len(self.own)]) > 0


def _reach(alpha: float) -> float:
    """Return how many standard errors apart means must be to be shown apart with probability `POWER`."""
    normal = NormalDist()
    return normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(POWER)


def _further(now: int, needed: float) -> int | None:
    """Return the seeds that are lacking, at least one; None if that is too many."""
    return None if needed > MOST_SEEDS else max(math.ceil(needed) - now, 1)
