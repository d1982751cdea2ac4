"""The exact permutation test for two groups, and how many seeds it takes.

If two groups are alike, every division of all values into groups of these sizes is as probable, whatever
their distribution: normal, two-valued, or with ties. So p is never too small, also for very few seeds.
"""

import math
from collections.abc import Sequence
from itertools import count
from statistics import mean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

MOST_EXACT = 32
"""The most values in two groups up to which a test is exact. At 16 a side it takes 20 ms (measured by
`timeit` on one core of a CPU); each two values more double that."""

RESAMPLES = 19_999
"""Random divisions that are tried where there are more values."""

_NUMBERS = 1 << 20
"""Random numbers that are held at once."""

_ROUNDING = 1e-9


def permutation_p(values: Sequence[float], reference: Sequence[float]) -> float:
    """Return the two-sided p of a difference of means by the permutation test (Fisher 1935).

    Up to `MOST_EXACT` values it is the share of all divisions whose means lie as far apart. With more of them
    it is that of random divisions, the same ones every time.

    Raises ValueError: a group has no values, or one that is not finite.
    """
    every = [*values, *reference]
    if not (values and reference) or not all(map(math.isfinite, every)):
        raise ValueError("a permutation test needs a finite value in each group")
    middle = mean(every)
    scores = [value - middle for value in every]
    if len(every) <= MOST_EXACT:
        return share_as_far(scores, len(values))
    return _random_share(scores, len(values))


def share_as_far(scores: Sequence[float], size: int, *, below: bool = False) -> float:
    """Return the share of all subsets of a size whose sum is as far from zero as that of the first scores.

    All scores add up to zero. Sums of two halves are counted against each other, so that no subset is made.

    Args:
        scores: of all members.
        size: of a subset.
        below: count only subsets whose sum is as low or lower.
    """
    import numpy as np

    total = math.fsum(scores[:size])
    far = -total - _ROUNDING if below else abs(total) - _ROUNDING
    if far <= 0 and not below:
        return 1.0
    half = len(scores) // 2
    left, right = _sums_by_size(scores[:half]), _sums_by_size(scores[half:])
    found = 0
    for own in range(max(0, size - len(right) + 1), min(size, half) + 1):
        others = np.sort(right[size - own])
        found += int(np.searchsorted(others, -far - left[own], side="right").sum())
        if not below:
            above = len(others) - np.searchsorted(others, far - left[own], side="left")
            found += int(above.sum())
    return found / math.comb(len(scores), size)


def _sums_by_size(scores: Sequence[float]) -> "list[np.ndarray[Any, Any]]":
    """Return the sums of all subsets, by the number of their members."""
    import numpy as np

    sums, sizes = np.zeros(1), np.zeros(1, dtype=int)
    for score in scores:
        sums, sizes = np.concatenate([sums, sums + score]), np.concatenate([sizes, sizes + 1])
    return [sums[sizes == size] for size in range(len(scores) + 1)]


def _random_share(scores: Sequence[float], size: int) -> float:
    """Return `share_as_far` of random subsets, of which the observed one is one."""
    import numpy as np

    every, draw = np.asarray(scores), np.random.default_rng(0)
    far = abs(math.fsum(scores[:size])) - _ROUNDING
    found, left = 1, RESAMPLES
    while left:
        now = min(left, max(1, _NUMBERS // len(scores)))
        chosen = draw.random((now, len(scores))).argsort(axis=1)[:, :size]
        found += int((np.abs(every[chosen].sum(axis=1)) >= far).sum())
        left -= now
    return found / (1 + RESAMPLES)


def seeds_to_differ(tests: int, *, alpha: float) -> int:
    """Return the fewest values in each group with which the most different of so many pairs can differ.

    Of two groups of n that do not overlap the exact p is 2 over the number of ways to divide 2n in two.
    """
    return next(n for n in count(1) if tests * 2 / math.comb(2 * n, n) <= alpha)
