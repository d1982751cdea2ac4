"""Finite groups as permutations, and products of their elements."""

import re
from collections.abc import Callable
from functools import cache
from itertools import permutations, product
from math import factorial, prod
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.tasks.random import constant

LARGEST = 120
"""Most elements that a group may have: as many as S5 has."""
_NAME = re.compile(r"[SAZD]\d{1,3}(x[SAZD]\d{1,3})*")
_ORDERS: dict[str, Callable[[int], int]] = {
    "S": factorial,
    "A": lambda n: factorial(n) // 2,
    "Z": lambda n: n,
    "D": lambda n: 2 * n,
}
_SMALLEST = {"S": 2, "A": 3, "Z": 2, "D": 3}

Permutation = tuple[int, ...]


class Group(NamedTuple):
    """A finite group.

    elements: permutations p as images (p(0), p(1), ...), in lexicographic order, so that element 0 is the
    identity. table: number a * order + b is the product ab, which sends i to a(b(i)).
    """

    elements: tuple[Permutation, ...]
    table: tuple[int, ...]

    @property
    def order(self) -> int:
        """Number of elements."""
        return len(self.elements)

    @property
    def inverses(self) -> tuple[int, ...]:
        """The inverse of every element."""
        return tuple(
            self.table[first : first + self.order].index(0) for first in range(0, self.order**2, self.order)
        )

    def moving(self, most: int | None) -> tuple[int, ...]:
        """Return the elements that move at most `most` points, the identity first; None: all elements."""
        moved = [sum(i != image for i, image in enumerate(element)) for element in self.elements]
        return tuple(number for number, points in enumerate(moved) if most is None or points <= most)


@cache
def group(name: str) -> Group:
    """Return the group of that name.

    S5 and A5 permute five points, Z5 and D5 rotate (and reflect) a pentagon, A4xZ5 does two things
    independently.

    Raises:
        ValueError: if there is no such name, or the group has more than 120 elements.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"'{name}' is not the name of a group; use S, A, Z or D with a number, or several of these joined"
            " by x, such as A4xZ5"
        )
    factors = [(factor[0], int(factor[1:])) for factor in name.split("x")]
    for family, degree in factors:
        if degree < _SMALLEST[family]:
            raise ValueError(
                f"{family}{degree} is too small a group; {family}{_SMALLEST[family]} is the smallest of its"
                " kind"
            )
    if (
        any(degree > LARGEST for _, degree in factors)
        or prod(_ORDERS[family](degree) for family, degree in factors) > LARGEST
    ):
        raise ValueError(f"{name} has too many elements; groups may have at most {LARGEST}")
    elements_of_factors = [_elements(family, degree) for family, degree in factors]
    elements = tuple(_side_by_side(parts) for parts in product(*elements_of_factors))
    number = {element: i for i, element in enumerate(elements)}
    products = (tuple(a[i] for i in b) for a, b in product(elements, repeat=2))
    return Group(elements, tuple(number[element] for element in products))


def _elements(family: str, degree: int) -> list[Permutation]:
    if family in "SA":
        return [p for p in permutations(range(degree)) if family == "S" or _even(p)]
    turns = [tuple((start + i) % degree for i in range(degree)) for start in range(degree)]
    return sorted(turns + [turn[::-1] for turn in turns]) if family == "D" else turns


def _even(p: Permutation) -> bool:
    return sum(p[i] > p[j] for j in range(len(p)) for i in range(j)) % 2 == 0


def _side_by_side(parts: tuple[Permutation, ...]) -> Permutation:
    """Return one permutation of all parts' points, in which each part moves its own."""
    points: Permutation = ()
    for part in parts:
        points += tuple(len(points) + image for image in part)
    return points


@cache
def multiplication(name: str, device: torch.device) -> Tensor:
    """Return a group's table [order * order]."""
    return constant(group(name).table, device)


def prefix_products(name: str, elements: Tensor) -> Tensor:
    """Return the products of elements 0 ... t [B, T] of element numbers [B, T], in log2(T) steps."""
    order, table = group(name).order, multiplication(name, elements.device)
    reach = 1
    while reach < elements.shape[1]:
        joined = table[elements[:, :-reach] * order + elements[:, reach:]]
        elements = torch.cat([elements[:, :reach], joined], dim=1)
        reach *= 2
    return elements
