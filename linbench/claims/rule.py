"""Rules over named measures, written in a small part of Python's syntax.

A rule may use comparisons, `and`, `or`, `not`, arithmetic and a few functions, and nothing else.
"""

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from linbench.claims.evaluation import ARITHMETIC, COMPARISONS, FUNCTIONS
from linbench.claims.quantities import Formula, expand
from linbench.common.errors import UserError, unknown
from linbench.common.text import pluralize

_ALLOWED = f"comparisons (< <= > >=), and, or, not, + - * /, numbers, measures, and {', '.join(FUNCTIONS)}"


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

    @cached_property
    def formula(self) -> Formula:
        """The rule over comparisons of single quantities."""
        return expand(self.tree)

    def under(self, premise: "Rule | None") -> "Rule":
        """Return the rule for claims that hold only under a premise: both must be true."""
        if premise is None:
            return self
        tree = ast.BoolOp(ast.And(), [premise.tree, self.tree])
        return Rule(self.text, tree, tuple(dict.fromkeys((*premise.names, *self.names))))


def _is_condition(tree: ast.expr) -> bool:
    negated = isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
    return negated or isinstance(tree, ast.Compare | ast.BoolOp)


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
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            again(left)
            again(right)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in COMPARISONS for op in ops
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
    if function not in FUNCTIONS:
        raise unknown(f"function in {where}", function, FUNCTIONS)
    _, least, most = FUNCTIONS[function]
    if len(args) < least or (most is not None and len(args) > most):
        at_least = "" if most == least else "at least "
        raise UserError(f"{where}: {function} takes {at_least}{pluralize(least, 'value')}, not {len(args)}.")
