"""Iterations that solve A x = b for many symmetric positive matrices at once, which are known by products.

Vectors are the last dimension of a tensor. Nothing here is written in place, so that torch can differentiate
through every step.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]


def conjugate_gradient(product: Product, b: Tensor, steps: int) -> Tensor:
    """Return x after `steps` steps of conjugate gradients from zero.

    A vector that is done stays as it is: one whose residual is at most the rounding of b, which zero is at
    once, and one along whose direction A has no positive curvature, which is rounding too.
    """
    x, r, p = torch.zeros_like(b), b, b
    rr = _dot(r, r)
    rounding = torch.finfo(b.dtype).eps ** 2 * rr
    for _ in range(steps):
        Ap = product(p)
        curvature = _dot(p, Ap)
        going = (rr > rounding) & (curvature > 0)
        step = _ratio(rr, curvature, going)
        x, r = x + step * p, r - step * Ap
        before, rr = rr, _dot(r, r)
        p = r + _ratio(rr, before, going) * p
    return x


def chebyshev(product: Product, b: Tensor, lowest: Tensor, highest: Tensor, steps: int) -> Tensor:
    """Return x after `steps` steps of Chebyshev's iteration from b over the middle of the spectrum.

    Args:
        lowest, highest: bounds of the spectrum [..., 1], lowest > 0.
    """
    size, ratio = 2 / (highest + lowest), (highest - lowest) / (highest + lowest)
    x, before, weight = size * b, torch.zeros_like(b), torch.full_like(size, 2.0)
    for _ in range(steps):
        weight = 1 / (1 - ratio**2 * weight / 4)
        x, before = weight * (x - size * (product(x) - b)) + (1 - weight) * before, x
    return x


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(dim=-1, keepdim=True)


def _ratio(numerator: Tensor, denominator: Tensor, there: Tensor) -> Tensor:
    """Return the ratio where it is `there`, elsewhere zero, with a gradient that is finite everywhere."""
    return torch.where(there, numerator / torch.where(there, denominator, 1.0), 0.0)
