"""The recurrence of variants whose state is a vector, each number of which evolves by itself."""

from typing import Literal

from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import choose_backend, without_autocast
from linbench.kernels.scan.chunkwise import chunkwise
from linbench.kernels.scan.reference import reference

__all__ = ["VERSION", "flops_per_token", "scan"]

VERSION = 1
"""Version, raised whenever a change here changes results.

It is part of the identity of every cell that uses this family.
"""

Backend = Literal["auto", "reference", "chunkwise", "triton"]


def _triton(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    from linbench.kernels.scan.triton import triton_scan  # not everywhere to be had, and slow to import

    return triton_scan(a, b, state)


_BACKENDS = {"reference": reference, "chunkwise": chunkwise, "triton": _triton}


def scan(
    a: Tensor, b: Tensor, state: Tensor | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """Return h_t = a_t h_{t-1} + b_t, channel by channel.

    Args:
        a: broadcastable to [B, T, C], of any sign, at most 1 in size. Callers exponentiate logarithms, as
            differences where they may be large: `models/rwkv4.py` has an example.
        b: [B, T, C].
        state: [B, C] to start from; None is zero.
        backend: "auto" takes the fastest that runs on this device.

    Returns: h [B, T, C], and its last step [B, C], in at least float32.

    Raises ValueError: shapes that do not fit together, a backend that is not there or does not run on b.
    """
    took = choose_backend(backend, _BACKENDS, b, otherwise="chunkwise")
    if b.dim() != 3 or b.shape[1] < 1:
        raise ValueError(f"b must be [B, T, C] with T >= 1, not {tuple(b.shape)}")
    if a.dim() > 3 or any(
        size not in (1, full) for size, full in zip(reversed(a.shape), reversed(b.shape), strict=False)
    ):
        raise ValueError(f"a must broadcast to [B, T, C] = {tuple(b.shape)}, not {tuple(a.shape)}")
    if state is None:
        state = b.new_zeros(b.shape[0], b.shape[2])
    elif state.shape != (b.shape[0], b.shape[2]):
        raise ValueError(f"state must be [B, C] = {(b.shape[0], b.shape[2])}, not {tuple(state.shape)}")
    wide = at_least_float32(b.dtype)
    with without_autocast(b):
        h = _BACKENDS[took](a.to(wide).expand(b.shape), b.to(wide), state.to(wide))
    return h, h[:, -1].clone()


def flops_per_token(channels: int) -> int:
    """Return the floating-point operations of the recurrence itself, forward, per token.

    A multiply-add counts as two.
    """
    return 2 * channels
