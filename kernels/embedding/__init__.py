"""Rows of a matrix by number, with a gradient that is the same every time."""

import torch
from torch import Tensor

from linbench.kernels.embedding import eager
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["VERSION", "embedding"]

VERSION = 1
"""Version, raised whenever a change here changes results.

It is part of the identity of every cell that uses this family.
"""


def embedding(weight: Tensor, index: Tensor, *, backend: Backend = "auto") -> Tensor:
    """Return weight[index].

    The gradient of a row that does not occur is exactly zero. With Triton there is no second derivative.

    Args:
        weight: [V, D].
        index: [...] int64 in 0 ... V - 1.
        backend: "auto" takes the fastest that runs on this device.

    Returns: [..., D] in the dtype of weight. Gradients are summed in at least float32.

    Raises ValueError: a weight that is no matrix, an index that is not int64, a backend that is not there or
    does not run on weight. An index out of range raises on the CPU; with Triton, which does not wait for the
    device to look, it gives NaN and adds to no gradient.
    """
    if weight.dim() != 2:
        raise ValueError(f"weight must be [V, D], not {tuple(weight.shape)}")
    if index.dtype != torch.int64:
        raise ValueError(f"index must be int64, not {index.dtype}")
    if not uses_triton(weight, backend):
        return eager.embedding(weight, index)
    from linbench.kernels.embedding import triton

    return triton.embedding(weight, index)
