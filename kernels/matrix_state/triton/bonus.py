"""The bonus u, the weight of a token's own write (RWKV-5/6 2404.05892), and its gradient.

The gradient has a part from every chunk; they are always added in the same order.
"""

import triton
import triton.language as tl


@triton.jit
def load_bonus(u, bh, group, H, ks, K):
    """Load the bonus [1, K] of recurrence bh from u [B / group, H, K]."""
    return tl.load(u + (bh // H // group * H + bh % H) * K + ks, mask=ks < K, other=0.0).to(tl.float32)[
        None, :
    ]


@triton.jit
def place_of_parts(bh, n, N, H, K):
    """Return where chunk n of N of recurrence bh stores its part of the gradient, in du [B, N, H, K]."""
    return ((bh // H * N + n) * H + bh % H) * K


@triton.jit
def bonus_gradient(
    du, dbonus, parts, H: tl.constexpr, K: tl.constexpr, KEYS: tl.constexpr, AT_A_TIME: tl.constexpr
):
    """Sum du [R, parts, H, K] to dbonus [R H, K], of R replicas. Grid (R H, K / KEYS)."""
    replica, head = tl.program_id(0) // H, tl.program_id(0) % H
    ks = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    du += (replica.to(tl.int64) * parts * H + head) * K + ks[None, :]
    total = tl.zeros([AT_A_TIME, KEYS], tl.float32)
    for first in range(0, parts, AT_A_TIME):
        part = first + tl.arange(0, AT_A_TIME)[:, None]
        total += tl.load(du + part.to(tl.int64) * H * K, mask=(part < parts) & (ks < K)[None, :], other=0.0)
    tl.store(
        dbonus + tl.program_id(0) * K + ks, tl.sum(total, axis=0).to(dbonus.dtype.element_ty), mask=ks < K
    )
