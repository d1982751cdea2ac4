"""Intervals for numbers that are known only between two bounds, and arithmetic on them.

Most numbers are known exactly: their bounds are equal.
"""

import math
from collections.abc import Callable
from itertools import product
from statistics import fmean
from typing import NamedTuple


class NoValueError(Exception):
    """A rule has no value for these numbers, for example where it divides by zero. The message says why."""


class Interval(NamedTuple):
    """All numbers from `low` to `high`.

    A truth value is an interval, too: (1, 1) is true, (0, 0) is false, and (0, 1) may be either.
    """

    low: float
    high: float

    @property
    def exact(self) -> bool:
        """True if it holds one number only."""
        return self.low == self.high


def point(value: float) -> Interval:
    """Return the interval of one known number."""
    return Interval(value, value)


def bilinear(function: Callable[[float, float], float]) -> Callable[[Interval, Interval], Interval]:
    """Extend a function of two numbers to intervals by its values at their corners.

    Args:
        function: in each argument it must only rise or only fall, whatever the other one is.

    Raises:
        NoValueError: the function raises it, or a value at a corner is not a number.
    """

    def extended(a: Interval, b: Interval) -> Interval:
        values = [function(x, y) for x, y in product(a, b)]
        if any(map(math.isnan, values)):
            raise NoValueError("two measures that were never reached are compared")
        return Interval(min(values), max(values))

    return extended


def monotone(function: Callable[..., float]) -> Callable[..., Interval]:
    """Extend a function that never falls as an argument rises to intervals."""

    def extended(*intervals: Interval) -> Interval:
        low = function(*(interval.low for interval in intervals))
        high = function(*(interval.high for interval in intervals))
        return Interval(low, high)

    return extended


def exact_only(function: Callable[..., float]) -> Callable[..., Interval]:
    """Let a function that is not monotone take intervals, as long as each holds one number only.

    Raises:
        NoValueError: a number is not known exactly.
    """

    def extended(*intervals: Interval) -> Interval:
        if not all(interval.exact for interval in intervals):
            raise NoValueError("a trend or a line needs exact values, and some are known only within bounds")
        return point(function(*(interval.low for interval in intervals)))

    return extended


def divided(a: Interval, b: Interval) -> Interval:
    """Divide `a` by `b`. Raises NoValueError if `b` may be zero."""
    if b.low <= 0 <= b.high:
        raise NoValueError("a division by zero")
    return bilinear(lambda x, y: x / y)(a, b)


def negative(a: Interval) -> Interval:
    """Change the sign of an interval."""
    return Interval(-a.high, -a.low)


def absolute(a: Interval) -> Interval:
    """Return the absolute values of an interval."""
    if a.low >= 0:
        return a
    if a.high <= 0:
        return negative(a)
    return Interval(0.0, max(-a.low, a.high))


def best(*values: float) -> float:
    """Return the largest of one or more numbers."""
    return max(values)


def mean(*values: float) -> float:
    """Return the mean of numbers that are given one by one."""
    return fmean(values)


def rank(own: float, *others: float) -> float:
    """Return the rank of a number among others: 1 for the largest; equal numbers share their ranks."""
    return 1 + sum(other > own for other in others) + sum(other == own for other in others) / 2


def ranked(own: Interval, *others: Interval) -> Interval:
    """Extend `rank` to intervals: it falls as its own number rises."""
    lowest = rank(own.high, *(other.low for other in others))
    highest = rank(own.low, *(other.high for other in others))
    return Interval(lowest, highest)
