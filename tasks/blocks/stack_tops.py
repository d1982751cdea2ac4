"""The most common element on top of many stacks."""

from functools import cache
from math import factorial

import torch
from torch import Tensor

from linbench.tasks.blocks.chance import NEGLIGIBLE, poisson_at_mean, poisson_probability, unit_circle

__all__ = ["most_common_top_share"]


@cache
def most_common_top_share(
    stacks: int, *, depth: int, elements: int, operations: int, covered: bool = False
) -> float:
    """Return the share of pops that a guess of the likeliest element gets right.

    Each operation is of a uniform stack, which pops if it is full, pushes if it is empty and otherwise does
    either. So a stack that is neither weighs 1, a full one 2, an empty one nothing; the guess is the element
    with the most weight on top. With `covered` only pops after a pop of the same stack count: a stack weighs
    1 if it popped last and is not empty, and else nothing. As in `most_common_share`, operations of stacks
    and stacks of elements are taken to be Poisson, and then restricted to their true numbers; several numbers
    of operations are computed at once.
    """
    law, on_top, each = _weights(depth, operations, covered=covered), unit_circle(stacks), stacks / elements
    back = on_top**-stacks / len(on_top) / poisson_at_mean(stacks)
    right = due = 0.0
    begin = 0
    while begin < operations:
        before = torch.arange(begin, min(operations, begin + 1 + int(2 * begin**0.5)))
        mean = float(before.double().mean()) + 0.5
        points = int(10 * mean**0.5) + 64 + len(before)
        angle = 2 * torch.pi / points * torch.arange(points // 2 + 1, dtype=torch.float64)
        done = torch.arange(
            min(operations, int(mean / stacks + 12 * (mean / stacks) ** 0.5) + 24), dtype=torch.float64
        )
        so_many = torch.polar(
            poisson_probability(done, mean / stacks).expand(len(angle), -1), -angle[:, None] * done
        )
        nothing, once, twice = (so_many @ law[: len(done)].to(so_many.dtype)).unbind(1)

        weight = stacks * (once + 2 * twice) * (nothing + once + twice) ** (stacks - 1)
        due += float(_at_operation(weight, before, points, mean).sum())
        none, one, two = (each * on_top * x[:, None] for x in (nothing, once, twice))
        none, up_to = (none - each).exp(), torch.zeros_like(none)
        for most in range(2 * stacks):  # no element has more weight
            for twos in range(most // 2 + 1):
                ones = most - 2 * twos
                up_to = up_to + none * one**ones * two**twos / (factorial(ones) * factorial(twos))
            more = (1 - _at_operation((up_to**elements * back).sum(dim=1), before, points, mean)).clamp(0, 1)
            right += float(more.sum())
            if float(more.max()) < NEGLIGIBLE:
                break
        begin += len(before)
    return right / due


def _at_operation(values: Tensor, before: Tensor, points: int, mean: float) -> Tensor:
    """Return the values after exactly `before` operations, from those of a Poisson number of operations.

    Args:
        values: on half of the unit circle.
        before: numbers of operations.
        points: points of the whole circle.
        mean: of the Poisson number.
    """
    found: Tensor = torch.fft.irfft(values, n=points)
    return found[before % points] / poisson_probability(before.double(), mean)


def _weights(depth: int, most: int, *, covered: bool) -> Tensor:
    """Return the probabilities that a stack weighs 0, 1 and 2: [most + 1, 3].

    Rows are after 0, 1, ... operations of the stack.
    """
    # heights of a stack that pushed last, or did nothing yet, and of one that popped last
    pushed = torch.zeros(depth + 1, dtype=torch.float64)
    pushed[0] = 1.0
    popped = torch.zeros_like(pushed)
    up = torch.full_like(pushed, 0.5)
    up[0], up[-1] = 1.0, 0.0
    found = []
    for _ in range(most + 1):
        height = pushed + popped
        one, two = (popped[1:].sum(), popped.new_zeros(())) if covered else (height[1:-1].sum(), height[-1])
        found.append(torch.stack([1 - one - two, one, two]))
        rises = height * up
        pushed, popped = rises.roll(1), (height - rises).roll(-1)
    return torch.stack(found)
