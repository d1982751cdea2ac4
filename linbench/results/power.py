"""The power of a gate: the p of the largest possible fall, and the number of seeds that would show a fall."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, variance

from linbench.results.statistics import fisher, student_p

MOST_SEEDS = 1000
"""The largest number of seeds on each side that is tried."""

POWER = 0.95
"""The probability with which the falls that a gate names as visible would be red."""

_STEPS = 1000
"""The steps of probability in which the variance of differences is tried."""

_ROUNDING = 1e-9


def significant(p: float, alpha: float) -> bool:
    """Return whether p lies below alpha.

    The p of an exact test may equal alpha, such as 1/20; rounding must not decide then.
    """
    return p < alpha * (1 - _ROUNDING)


def collapse_p(baseline: Sequence[float], *, chance: float, learned_from: float | None, seeds: int) -> float:
    """Return the lowest one-sided p of a candidate whose every seed falls to chance.

    Args:
        baseline: accuracies of the baseline, one for each seed.
        chance: the chance level.
        learned_from: the accuracy from which on a seed has learned, for Fisher's test; None for the t-test
            of pairs.
        seeds: the number of seeds on each side.
    """
    if learned_from is not None:
        return _fisher_p(baseline, [chance], learned_from=learned_from, seeds=seeds)
    return _mean_p(chance - fmean(baseline), variance(baseline), seeds)


def seeds_to_show_collapse(
    baseline: Sequence[float], *, chance: float, learned_from: float | None, alpha: float
) -> int | None:
    """Return the fewest seeds on each side with which a fall of all seeds to chance is shown at `alpha`.

    None if that takes more than `MOST_SEEDS`.
    """
    return _fewest(
        lambda seeds: collapse_p(baseline, chance=chance, learned_from=learned_from, seeds=seeds), alpha
    )


def noisy_collapse_p(
    baseline: Sequence[float], candidate: Sequence[float], *, chance: float, seeds: int
) -> float:
    """Return the one-sided p of a candidate whose mean is chance, and differences that spread as measured.

    Args:
        baseline: accuracies of the baseline.
        candidate: accuracies of the candidate, in the order of the same seeds.
        chance: the chance level.
        seeds: the number of seeds on each side.
    """
    return _mean_p(chance - fmean(baseline), spread_of_differences(baseline, candidate), seeds)


def seeds_to_show_noisy_collapse(
    baseline: Sequence[float], candidate: Sequence[float], *, chance: float, alpha: float
) -> int | None:
    """Return the fewest seeds on each side with which a noisy fall of the mean to chance is shown at `alpha`.

    None if that takes more than `MOST_SEEDS`.
    """
    return _fewest(lambda seeds: noisy_collapse_p(baseline, candidate, chance=chance, seeds=seeds), alpha)


def seeds_to_show_fall(
    baseline: Sequence[float], candidate: Sequence[float], *, learned_from: float | None, alpha: float
) -> int | None:
    """Return the fewest seeds on each side with which a fall and spreads as measured are shown at `alpha`.

    None if that takes more than `MOST_SEEDS`.
    """
    if learned_from is not None:
        return _fewest(
            lambda seeds: _fisher_p(baseline, candidate, learned_from=learned_from, seeds=seeds), alpha
        )
    difference, spread = fmean(candidate) - fmean(baseline), spread_of_differences(baseline, candidate)
    return _fewest(lambda seeds: _mean_p(difference, spread, seeds), alpha)


def seeds_to_show_divergence(*, alpha: float) -> int | None:
    """Return the fewest seeds on each side that show at `alpha` that all diverge and none did before."""
    return _fewest(lambda seeds: fisher(0, seeds, seeds, seeds, alternative="less"), alpha)


def spread_of_differences(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """Return the variance of differences between two or more pairs of accuracies."""
    return variance([after - before for before, after in zip(baseline, candidate, strict=True)])


def visible_fall(spread: float, *, seeds: int, drop: float, alpha: float) -> float:
    """Return the smallest fall of the mean that is red with a probability of `POWER`.

    Args:
        spread: the variance of the difference between the accuracies of a pair.
        seeds: the number of pairs.
        drop: the fall that passes whatever its p.
        alpha: the level of the one-sided t-test for pairs.
    """
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import ndtr, stdtrit
    from scipy.stats import chi2

    error = math.sqrt(spread / seeds)
    if not error:
        return drop
    # standard deviations of differences, relative to the true one, each at equal steps of probability
    measured = np.sqrt(chi2.ppf((np.arange(_STEPS) + 0.5) / _STEPS, seeds - 1) / (seeds - 1))
    shown = np.maximum(stdtrit(seeds - 1, 1 - alpha) * measured, drop / error)

    def lacking(fall: float) -> float:
        return float(ndtr(fall - shown).mean()) - POWER

    return error * float(brentq(lacking, 0.0, float(shown.max()) + 10))


def visible_count(learned: int, *, seeds: int, alpha: float) -> int | None:
    """Return how many of the seeds may still learn at most for Fisher's test to show it; None: it cannot.

    Args:
        learned: the number of seeds that learned before.
        seeds: the number of seeds on each side.
        alpha: the level of the one-sided test.
    """
    shown = (
        after
        for after in range(learned - 1, -1, -1)
        if significant(fisher(after, seeds, learned, seeds, alternative="less"), alpha)
    )
    return next(shown, None)


def _fisher_p(
    baseline: Sequence[float], candidate: Sequence[float], *, learned_from: float, seeds: int
) -> float:
    """Return the p of fewer seeds learning, if of `seeds` seeds the same shares learn as were measured."""
    before, after = (
        math.floor(seeds * sum(value >= learned_from for value in side) / len(side) + _ROUNDING)
        for side in (baseline, candidate)
    )
    return fisher(after, seeds, before, seeds, alternative="less")


def _mean_p(difference: float, spread: float, seeds: int) -> float:
    """Return the one-sided p of a fall, for a mean difference of pairs and the variance of differences."""
    return student_p(difference, spread / seeds, seeds - 1, alternative="less")


def _fewest(p: Callable[[int], float], alpha: float) -> int | None:
    return next((seeds for seeds in range(2, MOST_SEEDS + 1) if significant(p(seeds), alpha)), None)
