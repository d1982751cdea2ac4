"""Statistics of times until something happens: Kaplan-Meier's median and the log-rank test, exact for few.

A time is known to lie between two looks, or to come after the last. All groups are taken to be looked at on
one grid. Then the estimates below, which put every event at the end of its interval, are those of
interval-censored data: nothing is known of the order of events within an interval, and nothing is assumed.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from linbench.results.permutation import MOST_EXACT, share_as_far


class Time(NamedTuple):
    """The interval in which something happened: later than `after`, and no later than `by`.

    Where it had not happened at the last look, that look is `after` and infinity is `by`. Where it cannot
    happen any more, both are infinity.
    """

    after: float
    by: float

    @property
    def happened(self) -> bool:
        """True if it happened while somebody looked."""
        return self.by < math.inf

    @property
    def last(self) -> float:
        """The last time at which it may have been about to happen."""
        return self.by if self.happened else self.after


class Median(NamedTuple):
    """The median of times with its confidence interval.

    Attributes:
        time: the first look at which it had happened to half of the group; infinity if it never had.
        low: the lower end of the interval; 0 if there is none.
        high: the upper end; infinity if there is none.
    """

    time: float
    low: float
    high: float


class Survival(NamedTuple):
    """The share to which something has not happened yet, by Kaplan and Meier (1958, doi:10.2307/2281868).

    Attributes:
        times: at which it happened to someone, rising.
        shares: what is left from each time on.
        low: the lower end of each share's confidence interval.
        high: the upper end.
    """

    times: list[float]
    shares: list[float]
    low: list[float]
    high: list[float]


def survival(times: Sequence[Time], *, confidence: float = 0.95) -> Survival:
    """Return Kaplan and Meier's estimate, with intervals for each share alone.

    Intervals are Greenwood's after a log-log transformation. That has no value where nobody is left; the
    exact binomial limits stand there.
    """
    from scipy.stats import ecdf  # where it is needed: scipy.stats takes a second to load

    happened = [time.by for time in times if time.happened]
    if not happened:
        return Survival([], [], [], [])
    left = ecdf(_censored(times, 2 * max(happened))).sf
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The confidence interval is undefined")
        band = left.confidence_interval(confidence, method="log-log")
    points = zip(
        left.quantiles, left.probabilities, band.low.probabilities, band.high.probabilities, strict=True
    )
    kept = [tuple(map(float, point)) for point in points if point[0] in set(happened)]
    highest = 1 - ((1 - confidence) / 2) ** (1 / len(happened))
    ends = [(low, high) if share > 0 else (0.0, highest) for _, share, low, high in kept]
    return Survival(
        [point[0] for point in kept],
        [point[1] for point in kept],
        [low for low, _ in ends],
        [high for _, high in ends],
    )


def _censored(times: Sequence[Time], beyond: float) -> Any:
    """Return times as scipy takes them, with a time `beyond` all events for infinity, which it refuses."""
    from scipy.stats import CensoredData

    return CensoredData(
        uncensored=[time.by for time in times if time.happened],
        right=[min(time.after, beyond) for time in times if not time.happened],
    )


def median(times: Sequence[Time], *, confidence: float = 0.95) -> Median:
    """Return the median of times with its confidence interval.

    The interval holds the medians that the intervals of `survival` do not exclude (Brookmeyer and Crowley
    1982, doi:10.2307/2530286). Its lower end is the look before. There is none with so few times that all may
    lie on one side of the median: fewer than five, for 95 %.

    Raises ValueError: there are no times.
    """
    if not times:
        raise ValueError("a median needs at least one time")
    found = survival(times, confidence=confidence)
    middle = _first(found.times, found.shares)
    if 0.5 ** len(times) > 1 - confidence:
        return Median(middle, 0.0, math.inf)
    return Median(
        middle, _look_before(times, _first(found.times, found.low)), _first(found.times, found.high)
    )


def _look_before(times: Sequence[Time], at: float) -> float:
    """Return the last look before something happened at a time; at infinity the last of all."""
    if at < math.inf:
        return min(time.after for time in times if time.by == at)
    return max((time.after for time in times if time.after < math.inf), default=math.inf)


def _first(times: Sequence[float], shares: Sequence[float]) -> float:
    """Return the first time at which a share is at most one half."""
    return next((time for time, share in zip(times, shares, strict=True) if share <= 0.5), math.inf)


def log_rank(
    first: Sequence[Time], second: Sequence[Time], *, alternative: Literal["two-sided", "later"] = "two-sided"
) -> float:
    """Return the p of the log-rank test for two groups.

    Up to `MOST_EXACT` times it is the share of all divisions into groups of these sizes whose observed less
    expected events differ from zero as much (Peto and Peto 1972, doi:10.2307/2344317). If the groups are
    alike and looked at for as long, any division is as probable, so that p is never too small. With more
    times it is that of `scipy.stats.logrank`, by the normal distribution.

    Args:
        first: the times of one group.
        second: those of the other.
        alternative: "two-sided", or "later": events of the first group come later, or never.

    Raises ValueError: a group has no times.
    """
    if not (first and second):
        raise ValueError("the log-rank test needs a time in each group")
    scores = log_rank_scores([*first, *second])
    if not any(scores):
        return 1.0
    if len(scores) > MOST_EXACT:
        from scipy.stats import logrank

        beyond = 2 * max(time.by for time in (*first, *second) if time.happened)
        side: Any = "two-sided" if alternative == "two-sided" else "less"
        return float(logrank(_censored(first, beyond), _censored(second, beyond), side).pvalue)
    return share_as_far(scores, len(first), below=alternative == "later")


def log_rank_scores(times: Sequence[Time]) -> list[float]:
    """Return the score of each time, whose sum over a group is its observed less its expected events.

    It is 1 for an event, else 0, less the hazards up to the time (Nelson and Aalen).
    """
    hazards = {
        at: sum(time.by == at for time in times) / sum(time.last >= at for time in times)
        for at in {time.by for time in times if time.happened}
    }
    return [
        time.happened - math.fsum(hazard for at, hazard in hazards.items() if at <= time.last)
        for time in times
    ]
