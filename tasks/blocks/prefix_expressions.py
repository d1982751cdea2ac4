"""Random expressions in prefix notation, their values, and how often each value comes."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.base import Split
from linbench.tasks.blocks.words import words
from linbench.tasks.random import Stream, constant, content

__all__ = ["OPERATORS", "Expressions", "apply", "draw_expressions", "value_shares"]

OPERATORS = "+-*"
"""Operators by their number."""


class Expressions(NamedTuple):
    """Expressions of up to L operators, each operator before its two operands; E = 2 L + 1.

    symbols: numbers, or operators from 0 on [R, E]. is_operator: which of the two [R, E]. used: whether the
    expression is so long [R, E]. value: modulo the modulus [R, 1]. depth: most operators that stand one
    within the other [R, 1].
    """

    symbols: Tensor
    is_operator: Tensor
    used: Tensor
    value: Tensor
    depth: Tensor


def draw_expressions(
    stream: Stream, operators: Tensor, *, most: int, modulus: int, split: Split
) -> Expressions:
    """Draw expressions of `operators` [R, 1] operators, of which `most` is the largest number.

    The first operand of an operator has a uniform number of the operators that are left, and the second
    operand the rest. Operators and numbers are uniform. Expressions of `most` operators are divided among the
    splits wherever few have the same form.
    """
    places = 2 * most + 1
    size, first, depth = _divide(stream.child("first operands").bits(places), operators)
    used = torch.arange(places, device=operators.device) <= 2 * operators
    is_operator = size > 0

    radices = tuple(len(OPERATORS) if place % 2 else modulus for place in range(places))
    free = stream.child("symbols").integers(places, below=constant(radices, operators.device)[None])
    whole = torch.full_like(operators, places)
    divided = words(stream, whole, radices=radices, shortest=places, split=split, given=content(size))
    letters = torch.where(operators == most, divided, free)
    # numbers are the letters at even places, in their order, and operators those at odd ones
    number = 2 * (used & ~is_operator).cumsum(dim=1) - 2
    symbols = letters.gather(1, torch.where(is_operator, 2 * is_operator.cumsum(dim=1) - 1, number))

    value = pad(symbols, (0, 2))
    for place in reversed(range(places)):
        second = value.gather(1, place + 2 + 2 * first[:, place, None])
        given = apply(symbols[:, place, None], value[:, place + 1, None], second, modulus)
        value[:, place, None] = torch.where(is_operator[:, place, None], given, value[:, place, None])
    return Expressions(
        symbols.where(used, 0), is_operator, used, value[:, :1], depth.amax(dim=1, keepdim=True)
    )


def _divide(draws: Tensor, operators: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return sizes of parts, of their first operands, and how many operators there are from each part up.

    A part of n operators takes 2 n + 1 places. So the first operand of the part at place p begins at p + 1,
    and its second operand at p + 2 + 2 m, if the first has m operators. All are [R, E].

    Args:
        draws: random bits [R, E].
        operators: of the whole [R, 1].
    """
    rows, places = draws.shape
    size, depth, first = (draws.new_zeros(rows, places + 2) for _ in range(3))
    size[:, :1] = operators
    for place in range(places):
        whole, deep = size[:, place], depth[:, place]
        is_divided = whole > 0
        depth[:, place] = deep = deep + is_divided
        first[:, place] = taken = draws[:, place] * whole >> 32
        # the last column takes what belongs nowhere
        for at, part in ((place + 1, taken), (place + 2 + 2 * taken, whole - 1 - taken)):
            at = torch.where(is_divided, at, places + 1)[:, None]
            size.scatter_(1, at, part[:, None])
            depth.scatter_(1, at, deep[:, None])
    return size[:, :places], first[:, :places], depth[:, :places]


def apply(operator: Tensor, first: Tensor, second: Tensor, modulus: int) -> Tensor:
    """Return the values of operators by their number, modulo the modulus."""
    difference = torch.where(operator == 1, first - second, first * second)
    return torch.where(operator == 0, first + second, difference) % modulus


@cache
def value_shares(modulus: int, operators: int) -> Tensor:
    """Return the probability of every value of an expression with so many operators, in float64."""
    if not operators:
        return torch.full((modulus,), 1 / modulus, dtype=torch.float64)
    number = torch.arange(modulus)
    a, b = number[:, None], number
    shares = torch.zeros(modulus, dtype=torch.float64)
    for first in range(operators):
        second = value_shares(modulus, operators - 1 - first)
        both = (value_shares(modulus, first)[:, None] * second).flatten()
        for operator in range(len(OPERATORS)):
            value = apply(torch.tensor(operator), a, b, modulus).flatten()
            shares = shares.index_add(0, value, both)
    return shares / (len(OPERATORS) * operators)
