"""What a gate could show at all: the p of the most extreme fall that a candidate can have, and the seeds it
takes to show it."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, variance

from linbench.results.statistics import fisher, welch_p

MOST_SEEDS = 1000
"""Seeds on each side up to which it is tried what would be shown."""

_ROUNDING = 1e-9

_SPREADS = [i / 20 for i in range(21)]
"""Of a candidate, as shares of the baseline's: none has the largest t, an equal one the most degrees of
freedom, and p is lowest between the two."""


def shown(p: float, alpha: float) -> bool:
    """Return whether p lies below alpha. The p of an exact test may be alpha itself, such as 1/20, which
    rounding must not decide."""
    return p < alpha * (1 - _ROUNDING)


def collapse_p(baseline: Sequence[float], *, chance: float, learnt: float | None, seeds: int) -> float:
    """Return the lowest one-sided p of a candidate whose every seed falls to chance, with so many `seeds` on
    each side and a baseline as it is.

    learnt: the accuracy from which on a seed has learnt, where Fisher's test counts these; None: Welch's test
        of the means.
    """
    if learnt is not None:
        return _fisher_p(baseline, [chance], learnt=learnt, seeds=seeds)
    fall, spread = fmean(baseline) - chance, variance(baseline) / seeds
    if fall <= 0:
        return 1.0
    return min(
        welch_p(-fall, (share**2 * spread, spread), (seeds, seeds), alternative="less") for share in _SPREADS
    )


def seeds_to_show_collapse(
    baseline: Sequence[float], *, chance: float, learnt: float | None, alpha: float
) -> int | None:
    """Return the fewest seeds on each side with which the most extreme fall is shown at `alpha`; None: more
    than `MOST_SEEDS`."""
    return _fewest(lambda seeds: collapse_p(baseline, chance=chance, learnt=learnt, seeds=seeds), alpha)


def noisy_collapse_p(
    baseline: Sequence[float], candidate: Sequence[float], *, chance: float, seeds: int
) -> float:
    """Return Welch's one-sided p of a candidate whose mean is chance and whose seeds spread as they do here,
    with so many `seeds` on each side."""
    parts = variance(candidate) / seeds, variance(baseline) / seeds
    return welch_p(chance - fmean(baseline), parts, (seeds, seeds), alternative="less")


def seeds_to_show_noisy_collapse(
    baseline: Sequence[float], candidate: Sequence[float], *, chance: float, alpha: float
) -> int | None:
    """Return the fewest seeds on each side with which that is shown at `alpha`; None: more than
    `MOST_SEEDS`."""
    return _fewest(lambda seeds: noisy_collapse_p(baseline, candidate, chance=chance, seeds=seeds), alpha)


def seeds_to_show_fall(
    baseline: Sequence[float], candidate: Sequence[float], *, learnt: float | None, alpha: float
) -> int | None:
    """Return the fewest seeds on each side with which a fall as large as this one, of sides as wide, is shown
    at `alpha`; None: more than `MOST_SEEDS`."""
    if learnt is not None:
        return _fewest(lambda seeds: _fisher_p(baseline, candidate, learnt=learnt, seeds=seeds), alpha)
    difference, spreads = fmean(candidate) - fmean(baseline), (variance(candidate), variance(baseline))
    return _fewest(
        lambda n: welch_p(difference, (spreads[0] / n, spreads[1] / n), (n, n), alternative="less"), alpha
    )


def seeds_to_show_divergence(*, alpha: float) -> int | None:
    """Return the fewest seeds on each side with which it is shown at `alpha` that none diverged and all do
    now."""
    return _fewest(lambda seeds: fisher(0, seeds, seeds, seeds, alternative="less"), alpha)


def _fisher_p(baseline: Sequence[float], candidate: Sequence[float], *, learnt: float, seeds: int) -> float:
    """That fewer learn, if of so many seeds the same share learns as does here."""
    before, after = (
        math.floor(seeds * sum(value >= learnt for value in side) / len(side) + _ROUNDING)
        for side in (baseline, candidate)
    )
    return fisher(after, seeds, before, seeds, alternative="less")


def _fewest(p: Callable[[int], float], alpha: float) -> int | None:
    return next((seeds for seeds in range(2, MOST_SEEDS + 1) if shown(p(seeds), alpha)), None)
