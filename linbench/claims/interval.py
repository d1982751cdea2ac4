"""Numbers that are known to lie between two, and what comes of them: exact ones, whose ends are the same,
above all."""

import math
from collections.abc import Callable
from itertools import product
from statistics import fmean
from typing import NamedTuple


class NoValueError(Exception):
    """The numbers have none by this rule, as where something is divided by zero; the message says it."""


class Span(NamedTuple):
    """Of truths 1 is true and 0 false; from 0 to 1 is what may be either."""

    low: float
    high: float

    @property
    def exact(self) -> bool:
        """Whether it is one number."""
        return self.low == self.high


def exactly(value: float) -> Span:
    """A number that is known."""
    return Span(value, value)


def corners(of: Callable[[float, float], float]) -> Callable[[Span, Span], Span]:
    """For what only rises or only falls with each of two numbers, wherever the other is. Raises NoValueError
    as that does, and where it is none."""

    def over(a: Span, b: Span) -> Span:
        found = [of(x, y) for x, y in product(a, b)]
        if any(map(math.isnan, found)):
            raise NoValueError("two measures that were never reached are set against each other")
        return Span(min(found), max(found))

    return over


def ends(of: Callable[..., float]) -> Callable[..., Span]:
    """For what rises with each number, or stays. Raises NoValueError as that does."""
    return lambda *spans: Span(of(*(span.low for span in spans)), of(*(span.high for span in spans)))


def known(of: Callable[..., float]) -> Callable[..., Span]:
    """For what has no such order. Raises NoValueError as that does, and where a number is not known."""

    def over(*spans: Span) -> Span:
        if not all(span.exact for span in spans):
            raise NoValueError("an order or a line is asked for of what is known between two numbers only")
        return exactly(of(*(span.low for span in spans)))

    return over


def divided(a: Span, b: Span) -> Span:
    """Raises NoValueError: by what may be zero."""
    if b.low <= 0 <= b.high:
        raise NoValueError("something is divided by zero")
    return corners(lambda x, y: x / y)(a, b)


def negative(a: Span) -> Span:
    """The other sign."""
    return Span(-a.high, -a.low)


def absolute(a: Span) -> Span:
    """Without its sign."""
    return a if a.low >= 0 else negative(a) if a.high <= 0 else Span(0.0, max(-a.low, a.high))


def best(*values: float) -> float:
    """The largest, of one number too."""
    return max(values)


def mean(*values: float) -> float:
    """Of numbers one by one."""
    return fmean(values)


def rank(own: float, *others: float) -> float:
    """1 for the largest of all; those that are equal share theirs."""
    return 1 + sum(other > own for other in others) + sum(other == own for other in others) / 2


def ranked(own: Span, *others: Span) -> Span:
    """`rank`, which falls as its own number rises."""
    return Span(
        rank(own.high, *(other.low for other in others)), rank(own.low, *(other.high for other in others))
    )
