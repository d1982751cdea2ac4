"""The values of rules, and of parts of them.

Where a measure is known only within bounds, a rule is true (or false) if it is so for every value between
them.
"""

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from statistics import correlation
from typing import NamedTuple

from linbench.claims.interval import (
    Interval,
    NoValueError,
    absolute,
    bilinear,
    divided,
    exact_only,
    mean,
    monotone,
    negative,
    point,
    rank,
    ranked,
)


def trend(*values: float) -> float:
    """Return Spearman's correlation of values with their order."""
    return _with_order([-rank(value, *values[:i], *values[i + 1 :]) for i, value in enumerate(values)])


def straight(*values: float) -> float:
    """Return R^2 of a straight line through values at equal distances; 1 if all are equal."""
    return 1.0 if min(values) == max(values) else _with_order(values) ** 2


def _with_order(values: Sequence[float]) -> float:
    """Return Pearson's correlation of values with their order."""
    if min(values) == max(values):
        raise NoValueError("values that are all equal have no trend")
    return correlation(range(len(values)), values)


def _log(value: float) -> float:
    if value <= 0:
        raise NoValueError(f"the logarithm of {value:g} does not exist")
    return math.log(value)


class Function(NamedTuple):
    """A function that a rule may call."""

    apply: Callable[..., Interval]
    least: int
    """The fewest arguments that it takes."""
    most: int | None = None
    """The most arguments that it takes; None: any number."""


FUNCTIONS: Mapping[str, Function] = {
    "min": Function(monotone(min), 2),
    "max": Function(monotone(max), 2),
    "mean": Function(monotone(mean), 1),
    "abs": Function(absolute, 1, 1),
    "log": Function(monotone(_log), 1, 1),
    "rank": Function(ranked, 2),
    "trend": Function(exact_only(trend), 3),
    "straight": Function(exact_only(straight), 3),
}

ARITHMETIC: Mapping[type[ast.AST], Callable[[Interval, Interval], Interval]] = {
    ast.Add: bilinear(lambda a, b: a + b),
    ast.Sub: bilinear(lambda a, b: a - b),
    ast.Mult: bilinear(lambda a, b: a * b),
    ast.Div: divided,
}
COMPARISONS: Mapping[type[ast.AST], Callable[[Interval, Interval], Interval]] = {
    ast.Lt: lambda a, b: Interval(a.high < b.low, a.low < b.high),
    ast.LtE: lambda a, b: Interval(a.high <= b.low, a.low <= b.high),
    ast.Gt: lambda a, b: Interval(a.low > b.high, a.high > b.low),
    ast.GtE: lambda a, b: Interval(a.low >= b.high, a.high >= b.low),
}


def is_number(tree: ast.expr) -> bool:
    """Return whether an expression names no measure and calls no function."""
    return not any(isinstance(node, ast.Name) for node in ast.walk(tree))


def evaluate(node: ast.AST, values: Mapping[str, Interval]) -> Interval:
    """Return the value of a rule, or of a part of one, that was checked. Raises NoValueError: it has none."""
    again = partial(evaluate, values=values)
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=int() | float() as value):
            return point(value)
        case ast.BoolOp(op=op, values=parts):
            # evaluate all parts: one without a value must not be skipped
            truths = list(map(again, parts))
            return (monotone(min) if isinstance(op, ast.And) else monotone(max))(*truths)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            truth = again(part)
            return Interval(1 - truth.high, 1 - truth.low)
        case ast.UnaryOp(operand=part):
            return negative(again(part))
        case ast.BinOp(left=left, op=op, right=right):
            return ARITHMETIC[type(op)](again(left), again(right))
        case ast.Compare(left=left, ops=ops, comparators=others):
            numbers = [again(part) for part in (left, *others)]
            truths = [COMPARISONS[type(op)](a, b) for op, (a, b) in zip(ops, pairwise(numbers), strict=True)]
            return Interval(min(truth.low for truth in truths), min(truth.high for truth in truths))
        case ast.Call(func=ast.Name(id=function), args=args):
            return FUNCTIONS[function].apply(*map(again, args))
        case _:
            raise AssertionError(f"{ast.dump(node)} was not refused")
