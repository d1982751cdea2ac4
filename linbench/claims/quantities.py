"""Rules as `and` and `or` over comparisons of single quantities, so that each can be tested by itself.

`not` is pushed down, chains of comparisons are taken apart, and `min`, `max` and `abs` are lifted out of
sums, differences, and products and quotients with numbers: `max(a, b) - min(a, b) >= 0.05` becomes
`a - b >= 0.05 or b - a >= 0.05`. What cannot be lifted, such as a ratio, a rank or a trend, is one quantity.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from linbench.claims.evaluation import FUNCTIONS, evaluate, is_number
from linbench.claims.interval import Interval, NoValueError

_OPPOSITE: Mapping[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.GtE(),
    ast.LtE: ast.Gt(),
    ast.Gt: ast.LtE(),
    ast.GtE: ast.Lt(),
}
"""The comparison that is true where one is false."""

_UPWARD = (ast.Gt, ast.GtE)

_DISCRETE = ("rank",)
"""The functions whose equal values do not mean that two measures are equal."""


@dataclass(frozen=True)
class Comparison:
    """One comparison of one quantity."""

    tree: ast.Compare

    def __str__(self) -> str:
        return ast.unparse(self.tree)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The measures in it, in their order."""
        found = (node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name))
        return tuple(dict.fromkeys(name for name in found if name not in FUNCTIONS))

    def holds(self, values: Mapping[str, Interval]) -> bool | None:
        """Return whether it is true of these values; None: they do not tell.

        Two measures that are equal tell nothing of which is better, also where the rule says `<=` or `>=`:
        two perfect models do not show that one is no better.
        """
        try:
            truth = evaluate(self.tree, values)
            if self._of_two_measures and self._tied(values):
                return False
        except NoValueError:
            return None
        return bool(truth.low) if truth.exact else None

    @cached_property
    def _of_two_measures(self) -> bool:
        """True if it says which of several measures is larger."""
        left, right = self.tree.left, self.tree.comparators[0]
        discrete = any(
            isinstance(node, ast.Compare) or (isinstance(node, ast.Name) and node.id in _DISCRETE)
            for side in (left, right)
            for node in ast.walk(side)
        )
        apart = not is_number(left) and not is_number(right)
        difference = isinstance(left, ast.BinOp) and isinstance(left.op, ast.Sub) and len(self.names) > 1
        against_zero = difference and is_number(right) and evaluate(right, {}).low == 0
        return not discrete and (apart or against_zero)

    def _tied(self, values: Mapping[str, Interval]) -> bool:
        difference = ast.BinOp(self.tree.left, ast.Sub(), self.tree.comparators[0])
        return tuple(evaluate(difference, values)) == (0.0, 0.0)


@dataclass(frozen=True)
class Every:
    """Conditions that must all be true; true if there are none."""

    parts: tuple["Formula", ...]

    def __str__(self) -> str:
        return " and ".join(f"({part})" if isinstance(part, Some) else str(part) for part in self.parts)


@dataclass(frozen=True)
class Some:
    """Conditions of which one must be true; false if there are none."""

    parts: tuple["Formula", ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.parts))


Formula = Comparison | Every | Some


def expand(tree: ast.expr) -> Formula:
    """Return a rule, or a part of one, over comparisons of single quantities."""
    match tree:
        case ast.BoolOp(op=op, values=parts):
            return _joined(isinstance(op, ast.And), [expand(part) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=ast.BoolOp(op=op, values=parts)):
            return _joined(isinstance(op, ast.Or), [expand(_negated(part)) for part in parts])
        case ast.UnaryOp(op=ast.Not(), operand=ast.UnaryOp(op=ast.Not(), operand=part)):
            return expand(part)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare() as chain):
            return _joined(
                False, [_expand_pair(left, _OPPOSITE[type(op)], right) for left, op, right in _pairs(chain)]
            )
        case ast.Compare():
            return _joined(True, [_expand_pair(left, op, right) for left, op, right in _pairs(tree)])
    raise AssertionError(f"{ast.unparse(tree)} is no condition")


def conditions(formula: Formula) -> tuple[Formula, ...]:
    """Return the conditions that a formula joins by `and`; itself if it joins none."""
    return formula.parts if isinstance(formula, Every) else (formula,)


def _negated(tree: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), tree)


def _pairs(chain: ast.Compare) -> list[tuple[ast.expr, ast.cmpop, ast.expr]]:
    sides = pairwise([chain.left, *chain.comparators])
    return [(left, op, right) for (left, right), op in zip(sides, chain.ops, strict=True)]


def _joined(conjunction: bool, parts: list[Formula]) -> Formula:
    """Join conditions by `and` or `or`; those that are joined alike already become one."""
    kind = Every if conjunction else Some
    flat: list[Formula] = []
    for part in parts:
        flat += part.parts if isinstance(part, kind) else [part]
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def _expand_pair(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Formula:
    """Expand a comparison: its sides may have `min` and `max` inside.

    max(..) >= t if one argument is, max(..) <= t if all are, and so on.
    """
    a, b = lifted(left), lifted(right)
    upward = isinstance(op, _UPWARD)
    if call := _lattice(a):
        function, arguments = call
        pairs = [_expand_pair(argument, op, b) for argument in arguments]
        return _joined((function == "min") == upward, pairs)
    if call := _lattice(b):
        function, arguments = call
        pairs = [_expand_pair(a, op, argument) for argument in arguments]
        return _joined((function == "max") == upward, pairs)
    if is_number(a) and is_number(b):  # such as a - a: nothing of it depends on measures
        truth = evaluate(ast.Compare(a, [op], [b]), {}).low
        return Every(()) if truth else Some(())
    return Comparison(ast.Compare(a, [op], [b]))


def _lattice(tree: ast.expr) -> tuple[str, list[ast.expr]] | None:
    """Return min or max and its arguments, if an expression is one of the two."""
    match tree:
        case ast.Call(func=ast.Name(id="min" | "max" as function), args=args):
            return function, args
    return None


def lifted(tree: ast.expr) -> ast.expr:
    """Return an equal expression whose `min`, `max` and `abs` stand outside of all else, where they can."""
    match tree:
        case ast.Call(func=ast.Name(id="min" | "max" as function), args=args):
            return _call(function, [lifted(arg) for arg in args])
        case ast.Call(func=ast.Name(id="abs"), args=[inner]):
            return _call("max", [lifted(inner), lifted(ast.UnaryOp(ast.USub(), inner))])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _mapped(lifted(operand), _negative, falling=True)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            return _sum(lifted(left), op, lifted(right))
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div() as op, right=right) if is_number(right):
            return _mapped(lifted(left), lambda part: ast.BinOp(part, op, right), falling=_below_zero(right))
        case ast.BinOp(left=left, op=ast.Mult() as op, right=right) if is_number(left):
            return _mapped(lifted(right), lambda part: ast.BinOp(left, op, part), falling=_below_zero(left))
    return tree


def _call(function: str, args: list[ast.expr]) -> ast.expr:
    return ast.Call(ast.Name(function), args, [])


def _mapped(tree: ast.expr, change: Callable[[ast.expr], ast.expr], *, falling: bool) -> ast.expr:
    """Apply a rising or falling change to an expression within its outer min and max."""
    if call := _lattice(tree):
        function, args = call
        parts = [_mapped(arg, change, falling=falling) for arg in args]
        return _call({"min": "max", "max": "min"}[function] if falling else function, parts)
    return change(tree)


def _sum(left: ast.expr, op: ast.operator, right: ast.expr) -> ast.expr:
    """Add or subtract two expressions within the outer min and max of both."""
    if _lattice(left):
        return _mapped(left, lambda part: _sum(part, op, right), falling=False)
    if _lattice(right):
        return _mapped(right, lambda part: _sum(left, op, part), falling=isinstance(op, ast.Sub))
    if isinstance(op, ast.Sub) and ast.dump(left) == ast.dump(right):
        return ast.Constant(0)
    return ast.BinOp(left, op, right)


def _negative(tree: ast.expr) -> ast.expr:
    match tree:
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return ast.BinOp(right, ast.Sub(), left)
    return ast.UnaryOp(ast.USub(), tree)


def _below_zero(number: ast.expr) -> bool:
    return evaluate(number, {}).low < 0
