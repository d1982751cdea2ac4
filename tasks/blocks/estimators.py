"""What is known of a linear function from the points before: estimators, each of which is what some memory
computes."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Observations", "averaging", "least_mean_squares", "nearest", "ridge", "running_moments"]


class Observations(NamedTuple):
    """x: [B, N, d] points, y: [B, N] their values."""

    x: Tensor
    y: Tensor


def averaging(told: Observations) -> Tensor:
    """[B, N], the value that the mean of y x over the points before gives each point: one step of gradient
    descent from 0, a sum memory."""
    x, y = told
    total = (x * y[:, :, None]).cumsum(dim=1) - x * y[:, :, None]
    count = torch.arange(x.shape[1], device=x.device).clamp(min=1)
    return (x * total).sum(dim=2) / count


def least_mean_squares(told: Observations, *, beta: float = 1.0) -> Tensor:
    """[B, N], each point's value before w moves to it: w <- w + beta x (y - w . x) / |x|^2, the delta rule
    with keys of unit length."""
    w, found = torch.zeros_like(told.x[:, 0]), []
    for x, y in zip(told.x.unbind(1), told.y.unbind(1), strict=True):
        found.append((w * x).sum(dim=1))
        w = w + beta * x * ((y - found[-1]) / x.square().sum(dim=1))[:, None]
    return torch.stack(found, dim=1)


def nearest(told: Observations, *, count: int) -> Tensor:
    """[B, N], the mean value of the `count` points before that lie nearest to each point, of all where there
    are fewer, 0 where there is none."""
    x, y = told
    places = torch.arange(x.shape[1], device=x.device)
    distance = torch.cdist(x, x).masked_fill(places >= places[:, None], float("inf"))
    near = distance.topk(min(count, x.shape[1]), dim=2, largest=False)
    there = near.values.isfinite()
    values = y[:, None].expand(-1, x.shape[1], -1).gather(2, near.indices).masked_fill(~there, 0)
    return values.sum(dim=2) / there.sum(dim=2).clamp(min=1)


def ridge(told: Observations, *, penalty: float, anew: int | None = None) -> Tensor:
    """[B, N], the value at each point of w that minimises the squared error at the points before plus penalty
    |w|^2; it forgets all of them at point `anew`. The penalty is the variance of the noise where weights have
    variance 1, whatever the scale of y."""
    found = []
    for x, gram, cross in running_moments(told, anew):
        factor = torch.linalg.cholesky(gram + penalty * torch.eye(x.shape[1], dtype=x.dtype, device=x.device))
        found.append((torch.cholesky_solve(cross[:, :, None], factor)[:, :, 0] * x).sum(dim=1))
    return torch.stack(found, dim=1)


def running_moments(told: Observations, anew: int | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Each point x [B, d] with the sums of x x^T [B, d, d] and x y [B, d] over those before it."""
    rows, count, size = told.x.shape
    gram, cross = told.x.new_zeros(rows, size, size), told.x.new_zeros(rows, size)
    for n in range(count):
        if n == anew:
            gram, cross = torch.zeros_like(gram), torch.zeros_like(cross)
        x = told.x[:, n]
        yield x, gram, cross
        gram, cross = gram + x[:, :, None] * x[:, None, :], cross + x * told.y[:, n, None]
