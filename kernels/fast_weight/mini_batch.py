"""The end of a mini-batch, where what its tokens have gathered becomes the memory's new weights."""

import torch
from torch import Tensor

from linbench.kernels.fast_weight.description import Maps, Memory, Step
from linbench.kernels.fast_weight.newton_schulz import orthogonalise

NORM_EPS = 1e-5
"""Least length of a column that keeps its length, as in LaCT's code."""


def finish(memory: Memory, step: Step, initial: Maps, scale: Tensor | None) -> Memory:
    """Return the memory with which the next mini-batch begins.

    Args:
        memory: after the last token of a mini-batch, with all that was gathered.
        step: the step.
        initial: initial weights [H, I, O].
        scale: of the change with reads = "own", broadcastable to [B, H, I, O]: that of the last token; None
            is one.
    """
    weights, change, momentum, gates, _ = memory
    if step.reads == "own":
        change = change if scale is None else tuple(scale * each for each in change)
    mean = () if gates is None else (gates / step.size)[..., None, None].unbind(dim=2)
    if mean and step.momentum:
        change = momentum = tuple(mean[0] * m + each for m, each in zip(momentum, change, strict=True))
    if step.orthogonal and step.reads == "before":
        change = tuple(orthogonalise(each, step.orthogonal) for each in change)
    if mean and step.decay:
        weights = tuple(mean[-1] * w for w in weights)
    weights = tuple(w + each for w, each in zip(weights, change, strict=True))
    if step.keeps_norms:
        weights = tuple(_as_long(w, first) for w, first in zip(weights, initial, strict=True))
    gathered = tuple(torch.zeros_like(each) for each in memory.gathered)
    gates = None if gates is None else torch.zeros_like(gates)
    return Memory(weights, gathered, momentum, gates, memory.window)


def _as_long(weights: Tensor, initial: Tensor) -> Tensor:
    """Return weights [B, H, I, O] whose columns are as long as those of the initial ones [H, I, O]."""
    wanted = (initial.square().sum(dim=-2, keepdim=True) + 1e-14).sqrt()
    return weights * (wanted / ((weights.square().sum(dim=-2, keepdim=True) + 1e-14).sqrt() + NORM_EPS))
