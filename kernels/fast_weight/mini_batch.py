"""The end of a mini-batch, where what its tokens have gathered becomes the memory's new weights."""

import torch
from torch import Tensor

from linbench.kernels.fast_weight.description import Maps, Memory, Step

MUON = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
"""Coefficients of five steps of Newton-Schulz, those of LaCT's code. arXiv:2505.23884."""

NORM_EPS = 1e-5
"""Least length of a column that keeps its length, as in LaCT's code."""


def orthogonalise(x: Tensor, steps: int) -> Tensor:
    """Return x [..., I, O] with singular values near one, by an odd polynomial in every step.

    After five steps those above a hundredth of x's Frobenius norm lie between 0.9 and 1.1. Further steps
    repeat the last coefficients. Zero stays zero. Muon, arXiv:2502.16982.
    """
    wide = x.shape[-2] <= x.shape[-1]
    y = x if wide else x.mT
    y = y / (y.square().sum(dim=(-2, -1), keepdim=True) + 1e-14).sqrt()
    for i in range(steps):
        a, b, c = MUON[min(i, len(MUON) - 1)]
        gram = y @ y.mT
        y = a * y + (b * gram + c * (gram @ gram)) @ y
    return y if wide else y.mT


def finish(memory: Memory, step: Step, initial: Maps, scale: Tensor | None) -> Memory:
    """Return the memory with which the next mini-batch begins.

    Args:
        memory: after the last token of a mini-batch, with all that was gathered.
        step: the step.
        initial: initial weights [H, I, O].
        scale: of the change with reads = "own", broadcastable to [B, H, I, O]: that of the last token; None
            is one.
    """
    weights, change, momentum, gates = memory
    if step.reads == "own":
        change = change if scale is None else tuple(scale * each for each in change)
    mean = () if gates is None else (gates / step.size)[..., None, None].unbind(dim=2)
    if mean and step.momentum:
        change = momentum = tuple(mean[0] * m + each for m, each in zip(momentum, change, strict=True))
    if step.orthogonal:
        change = tuple(orthogonalise(each, step.orthogonal) for each in change)
    if mean and step.decay:
        weights = tuple(mean[-1] * w for w in weights)
    weights = tuple(w + each for w, each in zip(weights, change, strict=True))
    if step.keeps_norms:
        weights = tuple(_as_long(w, first) for w, first in zip(weights, initial, strict=True))
    gathered = tuple(torch.zeros_like(each) for each in memory.gathered)
    return Memory(weights, gathered, momentum, None if gates is None else torch.zeros_like(gates))


def _as_long(weights: Tensor, initial: Tensor) -> Tensor:
    """Return weights [B, H, I, O] whose columns are as long as those of the initial ones [H, I, O]."""
    wanted = (initial.square().sum(dim=-2, keepdim=True) + 1e-14).sqrt()
    return weights * (wanted / ((weights.square().sum(dim=-2, keepdim=True) + 1e-14).sqrt() + NORM_EPS))
