"""Statistics over seeds: t-tests for means, Fisher's exact test for shares, and corrections."""

import math
from collections.abc import Sequence
from statistics import mean, variance
from typing import Literal, NamedTuple

Alternative = Literal["two-sided", "less", "greater"]
"""The alternative hypothesis: the values differ from the reference, lie below it, or lie above it."""


class Difference(NamedTuple):
    """The difference of two means, in the unit of the values."""

    mean: float
    low: float
    """The lower end of the two-sided confidence interval."""
    high: float
    """The upper end of the interval."""
    p: float
    """The probability of a difference at least as far in the direction of the alternative if the means are
    equal."""


def share_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the interval of a mean of shares by Student's t, within 0 and 1; None for fewer than two."""
    from scipy.special import stdtrit  # where it is needed: scipy takes half a second to load

    count = len(values)
    if count < 2:
        return None
    reach = float(stdtrit(count - 1, (1 + confidence) / 2)) * math.sqrt(variance(values) / count)
    return max(0.0, mean(values) - reach), min(1.0, mean(values) + reach)


def welch(
    values: Sequence[float],
    reference: Sequence[float],
    *,
    alternative: Alternative = "two-sided",
    confidence: float = 0.95,
) -> Difference:
    """Return the mean of `values` less that of `reference`, by Welch's t-test for unequal variances.

    See Welch 1947, doi:10.1093/biomet/34.1-2.28. If neither side has any spread there is no t: the interval
    is the difference itself, and p is 0 if the alternative holds, else 1.

    Raises ValueError: fewer than two values on a side, or one that is not finite.
    """
    sides = (values, reference)
    if min(map(len, sides)) < 2 or not all(math.isfinite(value) for side in sides for value in side):
        raise ValueError("Welch's t needs two or more finite values on each side")
    # exact, as mean is: equal values have none, and equal means
    parts = variance(values) / len(values), variance(reference) / len(reference)
    degrees = degrees_of_freedom(parts, (len(values), len(reference))) if any(parts) else 1.0
    return _student(mean(values) - mean(reference), sum(parts), degrees, alternative, confidence)


def paired(
    values: Sequence[float],
    reference: Sequence[float],
    *,
    alternative: Alternative = "two-sided",
    confidence: float = 0.95,
) -> Difference:
    """Return the mean of `values` less that of `reference`, by Student's t-test for pairs.

    What both values of a pair have in common, such as a seed's examples and initial values, adds nothing to
    the spread of their differences. If these have no spread there is no t: the interval is the difference
    itself, and p is 0 if the alternative holds, else 1.

    Args:
        values: of each pair the first.
        reference: of each pair the second, in the same order.
        alternative: the alternative hypothesis.
        confidence: of the two-sided interval.

    Raises ValueError: fewer than two pairs, sides of different lengths, or a value that is not finite.
    """
    count = len(values)
    if count < 2 or count != len(reference) or not all(map(math.isfinite, (*values, *reference))):
        raise ValueError("the t-test for pairs needs two or more pairs of finite values")
    apart = [value - other for value, other in zip(values, reference, strict=True)]
    return _student(mean(apart), variance(apart) / count, count - 1, alternative, confidence)


def _student(
    difference: float, part: float, degrees: float, alternative: Alternative, confidence: float
) -> Difference:
    """Return a difference with its interval and its p, as `student_p` takes them."""
    from scipy.special import stdtrit  # where it is needed: scipy takes half a second to load

    reach = float(stdtrit(degrees, (1 + confidence) / 2)) * math.sqrt(part)
    p = student_p(difference, part, degrees, alternative=alternative)
    return Difference(difference, difference - reach, difference + reach, p)


def student_p(
    difference: float, part: float, degrees: float, *, alternative: Alternative = "two-sided"
) -> float:
    """Return the p of a difference whose variance `part` was estimated with some degrees of freedom.

    Without any variance it is 0 if the alternative holds, else 1.
    """
    from scipy.special import stdtr

    if not part:
        holds = {"two-sided": difference != 0, "less": difference < 0, "greater": difference > 0}[alternative]
        return 0.0 if holds else 1.0
    t = difference / math.sqrt(part)
    below, above = float(stdtr(degrees, t)), float(stdtr(degrees, -t))
    return {"two-sided": min(1.0, 2 * min(below, above)), "less": below, "greater": above}[alternative]


def degrees_of_freedom(parts: Sequence[float], counts: Sequence[int]) -> float:
    """Return the degrees of freedom of a sum of means, by Welch and Satterthwaite.

    Args:
        parts: the variance that each mean has in the sum; one at least is above zero.
        counts: the number of values that each is the mean of.
    """
    return sum(parts) ** 2 / sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))


def fisher(
    learned: int,
    of: int,
    reference_learned: int,
    reference_of: int,
    *,
    alternative: Alternative = "two-sided",
) -> float:
    """Return the p of Fisher's exact test for two shares of seeds (Fisher 1922, doi:10.2307/2340521).

    Args:
        learned: the number of seeds that learned, out of `of`.
        of: the number of seeds.
        reference_learned: the number of the reference's seeds that learned, out of `reference_of`.
        reference_of: the number of the reference's seeds.
        alternative: `less` is a smaller share than the reference's.

    Raises ValueError: more seeds learned than there are.
    """
    from scipy.stats import fisher_exact

    if not (0 <= learned <= of and 0 <= reference_learned <= reference_of):
        counts = f"{learned} of {of} and {reference_learned} of {reference_of}"
        raise ValueError(f"{counts} are no shares; at most all seeds can learn")
    table = [[learned, of - learned], [reference_learned, reference_of - reference_learned]]
    return float(fisher_exact(table, alternative=alternative).pvalue)


def false_discovery(ps: Sequence[float]) -> list[float]:
    """Return p-values adjusted for many tests by the method of Benjamini and Hochberg, in the order given.

    Of those of at most alpha, all called significant, a share of at most alpha is false on average (1995,
    doi:10.1111/j.2517-6161.1995.tb02031.x).
    """
    adjusted, least = [0.0] * len(ps), 1.0
    for rank, place in sorted(enumerate(sorted(range(len(ps)), key=ps.__getitem__), 1), reverse=True):
        least = min(least, len(ps) / rank * ps[place])
        adjusted[place] = least
    return adjusted


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple tests by Holm's method (Holm 1979), in the order given.

    Those of at most alpha may all be called significant, with a probability of at most alpha that any of them
    is false.
    """
    adjusted, least = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = least
    return adjusted
