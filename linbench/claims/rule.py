"""Rules over named measures, written in a small part of Python's syntax.

A rule may use comparisons, `and`, `or`, `not`, arithmetic and a few functions, and nothing else. Where a
measure is known only within bounds, a rule is true (or false) if it is so for every value between them.
"""

import ast
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
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
from linbench.common.errors import UserError, unknown
from linbench.common.text import pluralize


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

SPREAD = "std"
"""The function of one measure's name that returns its standard deviation over seeds.

For a speed it returns half the distance between the 20th and the 80th percentile of its calls.
"""

_ARITHMETIC: Mapping[type[ast.AST], Callable[[Interval, Interval], Interval]] = {
    ast.Add: bilinear(lambda a, b: a + b),
    ast.Sub: bilinear(lambda a, b: a - b),
    ast.Mult: bilinear(lambda a, b: a * b),
    ast.Div: divided,
}
_COMPARISONS: Mapping[type[ast.AST], Callable[[Interval, Interval], Interval]] = {
    ast.Lt: lambda a, b: Interval(a.high < b.low, a.low < b.high),
    ast.LtE: lambda a, b: Interval(a.high <= b.low, a.low <= b.high),
    ast.Gt: lambda a, b: Interval(a.low > b.high, a.high > b.low),
    ast.GtE: lambda a, b: Interval(a.low >= b.high, a.high >= b.low),
}
_ALLOWED = "comparisons (< <= > >=), and, or, not, + - * /, numbers, measures, and " + ", ".join(
    [*FUNCTIONS, SPREAD]
)


_MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
"""The comparison that says the same with its sides exchanged."""

_IN_WORDS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "less than",
    ast.LtE: "at most",
    ast.Gt: "more than",
    ast.GtE: "at least",
}


class Threshold(NamedTuple):
    """A comparison of an expression with a fixed number."""

    expression: ast.expr
    comparison: type[ast.cmpop]
    bound: float

    def __str__(self) -> str:
        return f"{_IN_WORDS[self.comparison]} {self.bound:g}"


@dataclass(frozen=True)
class Rule:
    """A condition on measures."""

    text: str
    tree: ast.expr
    names: tuple[str, ...]
    """The names of its measures, in their order."""

    @classmethod
    def parse(cls, text: str, measures: Collection[str], *, where: str) -> "Rule":
        """Read a rule.

        Args:
            measures: the names that it may use.
            where: the place of the rule, with which error messages begin.

        Raises:
            UserError: the text is not a condition on these measures.
        """
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:
            reason = getattr(error, "msg", error)
            raise UserError(f"{where}: cannot read '{text}' as a rule: {reason}.") from None
        names: dict[str, None] = {}
        _check(tree, measures, where, names)
        if not _is_condition(tree):
            raise UserError(
                f"{where}: '{text}' is a number; write a condition that is true or false, such as a >= 0.9."
            )
        return cls(text, tree, tuple(names))

    @property
    def parts(self) -> list["Rule"]:
        """The conditions that it joins by `and`, each a rule."""
        return self._joined_by(ast.And)

    @property
    def alternatives(self) -> list["Rule"]:
        """The conditions that it joins by `or`, each a rule."""
        return self._joined_by(ast.Or)

    def _joined_by(self, operator: type[ast.boolop]) -> list["Rule"]:
        trees = [self.tree]
        if isinstance(self.tree, ast.BoolOp) and isinstance(self.tree.op, operator):
            trees = self.tree.values
        return [Rule(ast.unparse(tree), tree, self.names) for tree in trees]

    @property
    def threshold(self) -> Threshold | None:
        """The rule as one comparison of an expression with a number; None if it is anything else."""
        match self.tree:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _threshold(left, op, right)
        return None

    def holds(self, values: Mapping[str, Interval], spreads: Mapping[str, float]) -> bool | None:
        """Return whether the rule is true; None if it depends on where in their intervals the values lie.

        Args:
            values: by the names of measures.
            spreads: standard deviations over seeds, by the same names.

        Raises:
            NoValueError: something in the rule has no value.
        """
        truth = evaluate(self.tree, values, spreads)
        return bool(truth.low) if truth.exact else None


def _is_condition(tree: ast.expr) -> bool:
    negated = isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
    return negated or isinstance(tree, ast.Compare | ast.BoolOp)


def _threshold(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Threshold:
    """Return a comparison with everything that varies on its left side."""
    if _is_number(right):
        return Threshold(left, type(op), evaluate(right, {}, {}).low)
    if _is_number(left):
        return Threshold(right, _MIRRORED[type(op)], evaluate(left, {}, {}).low)
    return Threshold(ast.BinOp(left, ast.Sub(), right), type(op), 0.0)


def _is_number(tree: ast.expr) -> bool:
    return not any(isinstance(node, ast.Name) for node in ast.walk(tree))


def _check(node: ast.AST, measures: Collection[str], where: str, names: dict[str, None]) -> None:
    """Refuse anything that a rule may not contain, and add the measures in it to `names`."""
    again = partial(_check, measures=measures, where=where, names=names)
    match node:
        case ast.Name(id=name):
            if name not in measures:
                raise unknown(f"measure in {where}", name, measures)
            names[name] = None
        case ast.Constant(value=value):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserError(f"{where}: {value!r} is not a number.")
        case ast.BoolOp(values=parts):
            for part in parts:
                again(part)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=part):
            again(part)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            again(left)
            again(right)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARISONS for op in ops
        ):
            for part in (left, *others):
                again(part)
        case ast.Call(func=ast.Name(id=function), args=args, keywords=[]):
            _check_call(function, args, where)
            for part in args:
                again(part)
        case _:
            raise UserError(
                f"{where}: '{ast.unparse(node)}' is not allowed in a rule; allowed are {_ALLOWED}."
            )


def _check_call(function: str, args: Sequence[ast.expr], where: str) -> None:
    if function == SPREAD:
        if len(args) != 1 or not isinstance(args[0], ast.Name):
            raise UserError(f"{where}: {SPREAD} takes one measure, by its name.")
        return
    if function not in FUNCTIONS:
        raise unknown(f"function in {where}", function, [*FUNCTIONS, SPREAD])
    _, least, most = FUNCTIONS[function]
    if len(args) < least or (most is not None and len(args) > most):
        at_least = "" if most == least else "at least "
        raise UserError(f"{where}: {function} takes {at_least}{pluralize(least, 'value')}, not {len(args)}.")


def evaluate(node: ast.AST, values: Mapping[str, Interval], spreads: Mapping[str, float]) -> Interval:
    """Return the value of a rule, or of a part of one, that was checked. Raises NoValueError: it has none."""
    again = partial(evaluate, values=values, spreads=spreads)
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
            return _ARITHMETIC[type(op)](again(left), again(right))
        case ast.Compare(left=left, ops=ops, comparators=others):
            numbers = [again(part) for part in (left, *others)]
            truths = [_COMPARISONS[type(op)](a, b) for op, (a, b) in zip(ops, pairwise(numbers), strict=True)]
            return Interval(min(truth.low for truth in truths), min(truth.high for truth in truths))
        case ast.Call(func=ast.Name(id=function), args=args):
            if function == SPREAD and isinstance(args[0], ast.Name):
                return point(spreads[args[0].id])
            return FUNCTIONS[function].apply(*map(again, args))
        case _:
            raise AssertionError(f"{ast.dump(node)} was not refused")
