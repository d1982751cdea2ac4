"""A cache's next token on a GPU: written in place in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.matrix_state.triton.launch import power_of_two


@triton.jit(do_not_specialize=["B", "S"])
def _append(
    keys, values, there, k, v, at, seen, fits, B, S, k_b, k_h, v_b, v_h,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """Write k and v [B, 1, H, K or V] of tokens `at` [B, 1] into keys and values [B, H, S, K or V].

    Also written are there [B, S], seen [B], and whether every token has a place, fits [1]. Grid (B H).
    """
    bh = tl.program_id(0).to(tl.int64)
    batch, head = bh // H, bh % H
    position = tl.load(at + batch)
    place = position % S
    ks, vs = tl.arange(0, BK), tl.arange(0, BV)
    row = tl.load(k + batch * k_b + head * k_h + ks, mask=ks < K, other=0.0)
    tl.store(keys + (bh * S + place) * K + ks, row.to(keys.dtype.element_ty), mask=ks < K)
    row = tl.load(v + batch * v_b + head * v_h + vs, mask=vs < V, other=0.0)
    tl.store(values + (bh * S + place) * V + vs, row.to(values.dtype.element_ty), mask=vs < V)
    if head == 0:
        tl.store(there + batch * S + place, position)
        tl.store(seen + batch, position + 1)
    if bh == 0:
        rows = tl.arange(0, BB)
        tl.store(fits, tl.max(tl.load(at + rows, mask=rows < B, other=0), axis=0) < S)


def append(
    keys: Tensor, values: Tensor, there: Tensor, k: Tensor, v: Tensor, at: Tensor
) -> tuple[Tensor, Tensor]:
    """Write one more token into a cache; arguments and results are those of `caches.append_one`."""
    (batch, heads, places, key_dim), value_dim = keys.shape, values.shape[3]
    k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (k, v))
    at = at.contiguous()
    seen, fits = at.new_empty(batch), at.new_empty(1, dtype=torch.bool)
    _append[(batch * heads,)](
        keys, values, there, k, v, at, seen, fits, batch, places, k.stride(0), k.stride(2), v.stride(0),
        v.stride(2), H=heads, K=key_dim, V=value_dim, BK=power_of_two(key_dim), BV=power_of_two(value_dim),
        BB=power_of_two(batch), num_warps=1,
    )  # fmt: skip
    return seen, fits
