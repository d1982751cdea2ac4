"""RWKV-7's keys: what a token erases, how much of it, and what it writes under."""

import torch
from torch import Tensor

from linbench.kernels.erasure.eager import eager
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["VERSION", "erasure"]

VERSION = 0
"""Version, 0 until a change here changes results.

From then on it is part of the identity of every cell that uses this family.
"""


def erasure(
    k: Tensor,
    offset: Tensor,
    base: Tensor,
    k_k: Tensor,
    k_a: Tensor,
    *,
    dtype: torch.dtype | None = None,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """Return k (1 + (a - 1) k_a), -c and c a, arXiv:2503.14456.

    The rate is a = sigmoid(base + offset), and the unit key c = k k_k / |k k_k|; a k k_k shorter than 1e-12
    is divided by that.

    Args:
        k: [..., H, K].
        offset: [..., H K].
        base, k_k, k_a: [H, K].
        dtype: dtype of the results; None is that of k.
        backend: "auto" takes the fastest that runs on this device.

    Returns: the key that is written under and the two vectors of the transition diag(w) - (c a) c^T, each
    shaped as k. Inside, at least float32.

    Raises ValueError: shapes that do not fit together, a backend that is not there or does not run on k.
    """
    if not base.shape == k_k.shape == k_a.shape == k.shape[-2:] or offset.shape != (
        *k.shape[:-2],
        base.numel(),
    ):
        shapes = [*map(tuple, (given.shape for given in (k, offset, base, k_k, k_a)))]
        raise ValueError(f"k [..., H, K], offset [..., H K] and base, k_k, k_a [H, K], not {shapes}")
    if not uses_triton(k, backend):
        return eager(k, offset, base, k_k, k_a, dtype or k.dtype)
    from linbench.kernels.erasure import triton

    return triton.erasure(k, offset, base, k_k, k_a, dtype or k.dtype)
