"""Estimators of a linear function from earlier points; each is what some kind of memory computes."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Observations", "averaging", "least_mean_squares", "nearest", "ridge", "running_moments"]


class Observations(NamedTuple):
    """x: points [B, N, d]. y: their values [B, N]."""

    x: Tensor
    y: Tensor


def averaging(observed: Observations) -> Tensor:
    """Predict with the mean of y x over earlier points, as a sum memory does: [B, N].

    This is one step of gradient descent from 0.
    """
    x, y = observed
    total = (x * y[:, :, None]).cumsum(dim=1) - x * y[:, :, None]
    count = torch.arange(x.shape[1], device=x.device).clamp(min=1)
    return (x * total).sum(dim=2) / count


def least_mean_squares(observed: Observations, *, beta: float = 1.0) -> Tensor:
    """Predict each point's value before w moves to it: w <- w + beta x (y - w . x) / |x|^2.

    Returns [B, N]. This is the delta rule with keys of unit length.
    """
    w = torch.zeros_like(observed.x[:, 0])
    predictions = []
    for x, y in zip(observed.x.unbind(1), observed.y.unbind(1), strict=True):
        predicted = (w * x).sum(dim=1)
        w = w + beta * x * ((y - predicted) / x.square().sum(dim=1))[:, None]
        predictions.append(predicted)
    return torch.stack(predictions, dim=1)


def nearest(observed: Observations, *, count: int) -> Tensor:
    """Predict the mean value of the `count` nearest earlier points: [B, N].

    If there are fewer points, of all; if there is none, 0.
    """
    x, y = observed
    places = torch.arange(x.shape[1], device=x.device)
    distance = torch.cdist(x, x).masked_fill(places >= places[:, None], float("inf"))
    near = distance.topk(min(count, x.shape[1]), dim=2, largest=False)
    is_earlier = near.values.isfinite()
    values = y[:, None].expand(-1, x.shape[1], -1).gather(2, near.indices).masked_fill(~is_earlier, 0)
    return values.sum(dim=2) / is_earlier.sum(dim=2).clamp(min=1)


def ridge(observed: Observations, *, penalty: float, anew: int | None = None) -> Tensor:
    """Predict with the w that minimises squared error plus penalty |w|^2 over earlier points: [B, N].

    Args:
        observed: points and values.
        penalty: variance of the noise where weights have variance 1, whatever the scale of y.
        anew: point from which on all earlier ones are forgotten.
    """
    predictions = []
    for x, gram, cross in running_moments(observed, anew):
        regular = penalty * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        w = torch.cholesky_solve(cross[:, :, None], torch.linalg.cholesky(gram + regular))[:, :, 0]
        predictions.append((w * x).sum(dim=1))
    return torch.stack(predictions, dim=1)


def running_moments(observed: Observations, anew: int | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield each point x [B, d] with the sums of x x^T [B, d, d] and x y [B, d] over the points before it."""
    rows, count, size = observed.x.shape
    gram, cross = observed.x.new_zeros(rows, size, size), observed.x.new_zeros(rows, size)
    for n in range(count):
        if n == anew:
            gram, cross = torch.zeros_like(gram), torch.zeros_like(cross)
        x = observed.x[:, n]
        yield x, gram, cross
        gram = gram + x[:, :, None] * x[:, None, :]
        cross = cross + x * observed.y[:, n, None]
