"""Cross-entropy of a linear head's logits, which are never all in memory at once."""

import torch
from torch import Tensor

from linbench.kernels.cross_entropy.operator import forward
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["VERSION", "cross_entropy"]

VERSION = 2
"""Version, raised whenever a change here changes results.

It is part of the identity of every cell that uses this family.
"""


def cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, *, ignore: int = -100, backend: Backend = "auto"
) -> Tensor:
    """Return the mean over rows of -log softmax(weight hidden)[target], in nats.

    Unless torch.no_grad() holds, gradients are computed with the loss, while a block of logits is at hand.
    There is no second derivative.

    Args:
        hidden: [N, D], or [R, N, D] for R replicas; then weight and targets have R in front, too.
        weight: [V, D], taken in the dtype of hidden.
        targets: [N] int64 in 0 ... V - 1, or `ignore` for rows that do not count.
        backend: "auto" takes the fastest that runs on this device.

    Returns: the loss, a number, or [R], in at least float32; NaN if no row counts. Gradients are zero there.

    Raises ValueError: shapes that do not fit together, targets that are not int64, a backend that is not
    there or does not run on hidden. A target out of range raises on the CPU and makes the loss NaN with
    Triton, which does not wait for the device to look.
    """
    shapes = hidden.shape, weight.shape, targets.shape
    if (
        hidden.dim() not in (2, 3)
        or weight.dim() != hidden.dim()
        or hidden.shape[-1] != weight.shape[-1]
        or hidden.shape[:-1] != targets.shape
    ):
        raise ValueError(
            f"hidden [N, D], weight [V, D], targets [N], or each with R before, not {[*map(tuple, shapes)]}"
        )
    if hidden.dim() == 3 and hidden.shape[0] != weight.shape[0]:
        raise ValueError(
            f"hidden and weight must have the same number of replicas, not {[*map(tuple, shapes)]}"
        )
    if targets.dtype != torch.int64:
        raise ValueError(f"targets must be int64, not {targets.dtype}")
    triton = uses_triton(hidden, backend)
    if hidden.dim() == 2:
        return cross_entropy(hidden[None], weight[None], targets[None], ignore=ignore, backend=backend)[0]
    # under vmap a tensor does not tell whether it requires a gradient
    loss: Tensor = forward(hidden, weight, targets, ignore, torch.is_grad_enabled(), triton)[0]
    return loss
