"""The recurrence of Mamba (arXiv:2312.00752): a small vector for every channel.

The token says what to write, to forget and to read.
"""

from typing import Literal

from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import choose_backend, without_autocast
from linbench.kernels.selective_scan.chunkwise import chunkwise
from linbench.kernels.selective_scan.reference import reference

__all__ = ["VERSION", "flops_per_token", "selective_scan"]

VERSION = 0
"""Version, 0 until a change here changes results.

From then on it is part of the identity of every cell that uses this family.
"""

Backend = Literal["auto", "reference", "chunkwise", "triton"]


def _triton(
    u: Tensor, step: Tensor, rate: Tensor, write: Tensor, read: Tensor, state: Tensor, signed: bool
) -> tuple[Tensor, Tensor]:
    # not everywhere to be had, and slow to import
    from linbench.kernels.selective_scan.triton import triton_selective_scan

    return triton_selective_scan(u, step, rate, write, read, state, signed)


_BACKENDS = {"reference": reference, "chunkwise": chunkwise, "triton": _triton}


def selective_scan(
    u: Tensor,
    step: Tensor,
    rate: Tensor,
    write: Tensor,
    read: Tensor,
    state: Tensor | None = None,
    *,
    signed: bool = False,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """Return y_t = read_t . h_t with h_t = a_t h_{t-1} + step_t u_t write_t, arXiv:2312.00752.

    a_t = exp(step_t rate), for each of W channels with N states.

    Args:
        u, step: [B, T, W]; step >= 0.
        rate: [W, N] <= 0.
        write, read: [B, T, N], the same for all channels.
        state: [B, W, N] to start from; None is zero.
        signed: whether 2 a_t - 1, from -1 to 1, takes the place of a_t (arXiv:2411.12537).
        backend: "auto" takes the fastest that runs on this device.

    Returns: y [B, T, W], and h after the last token [B, W, N], in at least float32.

    Raises ValueError: shapes that do not fit together, a backend that is not there or does not run on u.
    """
    took = choose_backend(backend, _BACKENDS, u, otherwise="chunkwise")
    if u.dim() != 3 or u.shape[1] < 1:
        raise ValueError(f"u must be [B, T, W] with T >= 1, not {tuple(u.shape)}")
    (batch, length, width), states = u.shape, rate.shape[-1]
    wanted = {
        "step": (step, u.shape),
        "rate": (rate, (width, states)),
        "write": (write, (batch, length, states)),
        "read": (read, (batch, length, states)),
    }
    state = u.new_zeros(batch, width, states) if state is None else state
    for name, (given, shape) in (wanted | {"state": (state, (batch, width, states))}).items():
        if given.shape != shape:
            raise ValueError(
                f"{name} must be {tuple(shape)} for u {tuple(u.shape)}, not {tuple(given.shape)}"
            )
    wide = at_least_float32(u.dtype)
    u, step, rate, write, read, state = (x.to(wide) for x in (u, step, rate, write, read, state))
    with without_autocast(u):
        return _BACKENDS[took](u, step, rate, write, read, state, signed)


def flops_per_token(channels: int, states: int) -> int:
    """Return the floating-point operations of the recurrence itself, forward, per token.

    Every state of a channel takes a product for its decay, a multiply-add, one product to write and a
    multiply-add to read; every channel a product.
    """
    return channels * (6 * states + 1)
