"""Rules over named measures: comparisons, `and`, `or`, `not`, arithmetic and a few functions, in Python's own
syntax and with nothing else of it. Of measures that are known between two numbers only, a rule holds or does
not where it is the same for all that lies between."""

import ast
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import correlation

from linbench.claims.interval import (
    NoValueError,
    Span,
    absolute,
    corners,
    divided,
    ends,
    exactly,
    known,
    mean,
    negative,
    rank,
    ranked,
)
from linbench.common.errors import UserError, unknown


def trend(*values: float) -> float:
    """Spearman's correlation of values with their order."""
    return _with_order([-rank(value, *values[:i], *values[i + 1 :]) for i, value in enumerate(values)])


def straight(*values: float) -> float:
    """R^2 of a straight line through values at equal distances; 1 where all are the same."""
    return 1.0 if min(values) == max(values) else _with_order(values) ** 2


def _with_order(values: Sequence[float]) -> float:
    """Pearson's correlation."""
    if min(values) == max(values):
        raise NoValueError("values that are all the same have no trend")
    return correlation(range(len(values)), values)


def _log(value: float) -> float:
    if value <= 0:
        raise NoValueError(f"the logarithm of {value:g} is asked for")
    return math.log(value)


FUNCTIONS: Mapping[str, tuple[Callable[..., Span], int, int | None]] = {
    "min": (ends(min), 2, None), "max": (ends(max), 2, None), "mean": (ends(mean), 1, None), "abs": (absolute, 1, 1), "log": (ends(_log), 1, 1),
    "rank": (ranked, 2, None), "trend": (known(trend), 3, None), "straight": (known(straight), 3, None),
}  # fmt: skip
"""What a rule may call, with how many values at least and at most."""

SPREAD = "std"
"""Of a measure alone: its standard deviation over seeds; of a speed half of what lies between the fifths of
its calls."""

_ARITHMETIC: Mapping[type[ast.AST], Callable[[Span, Span], Span]] = {
    ast.Add: corners(lambda a, b: a + b),
    ast.Sub: corners(lambda a, b: a - b),
    ast.Mult: corners(lambda a, b: a * b),
    ast.Div: divided,
}
_COMPARISONS: Mapping[type[ast.AST], Callable[[Span, Span], Span]] = {
    ast.Lt: lambda a, b: Span(a.high < b.low, a.low < b.high),
    ast.LtE: lambda a, b: Span(a.high <= b.low, a.low <= b.high),
    ast.Gt: lambda a, b: Span(a.low > b.high, a.high > b.low),
    ast.GtE: lambda a, b: Span(a.low >= b.high, a.high >= b.low),
}
_IN_WORDS = "comparisons (< <= > >=), and, or, not, + - * /, numbers, measures, and " + ", ".join(
    [*FUNCTIONS, SPREAD]
)


@dataclass(frozen=True)
class Rule:
    """A condition that is true or false of numbers."""

    text: str
    tree: ast.expr
    names: tuple[str, ...]
    """The measures in it, in their order."""

    @classmethod
    def of(cls, text: str, measures: Collection[str], *, where: str) -> "Rule":
        """Raises UserError: what is not a condition over these measures, in one sentence that begins with
        `where`."""
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise UserError(
                f"{where}: '{text}' cannot be read as a rule: {getattr(error, 'msg', error)}."
            ) from None
        names: dict[str, None] = {}
        _check(tree, measures, where, names)
        if not isinstance(tree, ast.Compare | ast.BoolOp) and not (
            isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
        ):
            raise UserError(f"{where}: '{text}' is a number; a rule is true or false, such as a >= 0.9.")
        return cls(text, tree, tuple(names))

    @property
    def parts(self) -> list["Rule"]:
        """What it joins by `and`."""
        trees = (
            self.tree.values
            if isinstance(self.tree, ast.BoolOp) and isinstance(self.tree.op, ast.And)
            else [self.tree]
        )
        return [Rule(ast.unparse(tree), tree, self.names) for tree in trees]

    def holds(self, values: Mapping[str, Span], spreads: Mapping[str, float]) -> bool | None:
        """Of each measure's value and spread; None where it may hold or not. Raises NoValueError."""
        found = _value(self.tree, values, spreads)
        return bool(found.low) if found.exact else None


def _check(node: ast.AST, measures: Collection[str], where: str, names: dict[str, None]) -> None:
    """Raises UserError: anything that a rule may not hold."""
    match node:
        case ast.Name(id=name):
            if name not in measures:
                raise unknown(f"measure in {where}", name, measures)
            names[name] = None
        case ast.Constant(value=value):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserError(f"{where}: {value!r} is no number.")
        case ast.BoolOp(values=parts):
            for part in parts:
                _check(part, measures, where, names)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=part):
            _check(part, measures, where, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            _check(left, measures, where, names)
            _check(right, measures, where, names)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARISONS for op in ops
        ):
            for part in (left, *others):
                _check(part, measures, where, names)
        case ast.Call(func=ast.Name(id=function), args=args, keywords=[]):
            _check_call(function, args, where)
            for part in args:
                _check(part, measures, where, names)
        case _:
            raise UserError(
                f"{where}: '{ast.unparse(node)}' is not allowed in a rule; allowed are {_IN_WORDS}."
            )


def _check_call(function: str, args: Sequence[ast.expr], where: str) -> None:
    if function == SPREAD:
        if len(args) != 1 or not isinstance(args[0], ast.Name):
            raise UserError(f"{where}: {SPREAD} takes one measure by its name.")
        return
    if function not in FUNCTIONS:
        raise unknown(f"function in {where}", function, [*FUNCTIONS, SPREAD])
    _, least, most = FUNCTIONS[function]
    if len(args) < least or (most is not None and len(args) > most):
        raise UserError(
            f"{where}: {function} takes {least if most == least else f'at least {least}'}, not {len(args)},"
            " values."
        )


def _value(node: ast.AST, values: Mapping[str, Span], spreads: Mapping[str, float]) -> Span:
    """Of a tree that was checked."""
    again = partial(_value, values=values, spreads=spreads)
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=int() | float() as value):
            return exactly(value)
        case ast.BoolOp(op=op, values=parts):
            # all of them first: one that has no value must not be passed over
            truths = list(map(again, parts))
            return (ends(min) if isinstance(op, ast.And) else ends(max))(*truths)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            truth = again(part)
            return Span(1 - truth.high, 1 - truth.low)
        case ast.UnaryOp(operand=part):
            return negative(again(part))
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](again(left), again(right))
        case ast.Compare(left=left, ops=ops, comparators=others):
            numbers = [again(part) for part in (left, *others)]
            truths = [_COMPARISONS[type(op)](a, b) for op, (a, b) in zip(ops, pairwise(numbers), strict=True)]
            return Span(min(truth.low for truth in truths), min(truth.high for truth in truths))
        case ast.Call(func=ast.Name(id=function), args=args):
            if function == SPREAD and isinstance(args[0], ast.Name):
                return exactly(spreads[args[0].id])
            return FUNCTIONS[function][0](*map(again, args))
        case _:
            raise AssertionError(f"{ast.dump(node)} was not refused")
