"""Softmax attention of one more token over a cache, on a GPU, in one launch or two.

A program has a part of the places of one head and reads each once. If several share a head, a second kernel
joins their results (2205.14135, section 3.1, and flash-decoding). Scores and sums are computed in float32,
without products of matrices, which one query would not fill.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.attention.positions import EMPTY
from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.decay import to_base_2
from linbench.kernels.matrix_state.triton.launch import power_of_two, processors
from linbench.kernels.operators import fold_replicas, operator


@triton.jit
def met(most, total, out, s, values):
    """Let C running softmaxes meet a score s [C] to base 2 and values [C or 1, V] each; -inf counts nothing.

    most, total: [C], the largest score and the sum of weights. out: [C, V], weighted sums of values.
    """
    more = tl.maximum(most, s)
    above = tl.where(more == float("-inf"), 0.0, more)  # where no key has been seen yet
    p, kept = tl.exp2(s - above), tl.exp2(most - above)
    return more, total * kept + p, out * kept[:, None] + p[:, None] * values


@triton.jit
def softmaxes_joined(most, total, out):
    """Join running softmaxes, as `met` has them, to one: its largest score, sum of weights, and sum [V]."""
    highest = tl.max(most, axis=0)
    weight = tl.exp2(most - tl.where(highest == float("-inf"), 0.0, highest))
    return highest, tl.sum(total * weight, axis=0), tl.sum(out * weight[:, None], axis=0)


@triton.jit
def _part(
    q, k, v, here, there, slopes, c_q, c_k, found, most, total,
    S, window, scale, k_b, k_s, k_h, v_b, v_s, v_h, slopes_b,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PARTS: tl.constexpr,
    NOTHING: tl.constexpr, WINDOW: tl.constexpr, SLOPES: tl.constexpr, GATED: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Attend over a part of the places. Grid (PARTS of every B H).

    Takes q [B, 1, H, K], k [B, S, HK, K], v [B, S, HK, V], here [B, 1], there [B, S], slopes [B, H], c_q [B,
    1, H] and c_k [B, S, H]. Stores o, or with PARTS > 1 for every part the largest score to base 2 and the
    sum of weights [B, H, PARTS], and the weighted sum of values [B, H, PARTS, V].
    """
    part, bh = place_in_grid(PARTS)
    batch, head = bh // H, bh % H
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    q_m = tl.load(q + bh * K + ks, mask=ks < K, other=0.0).to(tl.float32) * to_base_2(scale)
    now = tl.load(here + batch)
    k_at, v_at = k + batch * k_b + (head // (H // HK)) * k_h, v + batch * v_b + (head // (H // HK)) * v_h
    most_m, total_m = tl.full([C], float("-inf"), tl.float32), tl.zeros([C], tl.float32)
    out = tl.zeros([C, BV], tl.float32)
    share = tl.cdiv(tl.cdiv(S, C), PARTS) * C
    for n in tl.range(part * share, tl.minimum(part * share + share, S), C, num_stages=STAGES):
        place = batch * S + n
        at = tl.load(there + place + i, mask=i < S - n, other=NOTHING)
        seen = (at != NOTHING) & (at <= now)
        if WINDOW:
            seen = seen & (now - at < window)
        rows = (n + i).to(tl.int64)[:, None]
        keys = tl.load(k_at + rows * k_s + ks[None, :], mask=seen[:, None] & (ks[None, :] < K), other=0.0)
        values = tl.load(v_at + rows * v_s + vs[None, :], mask=seen[:, None] & (vs[None, :] < V), other=0.0)
        s = tl.sum(keys.to(tl.float32) * q_m[None, :], axis=1)
        if GATED:
            left = tl.load(c_q + bh) - tl.load(c_k + (place + i) * H + head, mask=seen, other=0.0)
            s += to_base_2(left.to(tl.float32))
        if SLOPES:
            s -= to_base_2(
                tl.load(slopes + batch * slopes_b + head).to(tl.float32) * (now - at).to(tl.float32)
            )
        s = tl.where(seen, s, float("-inf"))
        most_m, total_m, out = met(most_m, total_m, out, s, values.to(tl.float32))
    highest, whole, out_m = softmaxes_joined(most_m, total_m, out)
    if PARTS > 1:
        at = bh * PARTS + part
        tl.store(most + at, highest)
        tl.store(total + at, whole)
        tl.store(found + at * V + vs, out_m, mask=vs < V)
    else:
        out_m = out_m / tl.where(whole == 0.0, 1.0, whole)  # where no key is seen, which then counts nothing
        tl.store(found + bh * V + vs, out_m.to(found.dtype.element_ty), mask=vs < V)


@triton.jit
def _joined(found, most, total, o, V: tl.constexpr, BV: tl.constexpr, PARTS: tl.constexpr):
    """Join all parts to o [B, H, V]. Grid (B H)."""
    bh = tl.program_id(0).to(tl.int64)
    parts, vs = bh * PARTS + tl.arange(0, PARTS), tl.arange(0, BV)
    each = tl.load(found + parts[:, None] * V + vs[None, :], mask=vs[None, :] < V, other=0.0)
    _, whole, out = softmaxes_joined(tl.load(most + parts), tl.load(total + parts), each)
    out = out / tl.where(whole == 0.0, 1.0, whole)
    tl.store(o + bh * V + vs, out.to(o.dtype.element_ty), mask=vs < V)


_LEAST = 64
"""Places for which a program is worth its start: 16 parts of 1,024 places beat 4 by a fifth on an H200."""


def parts_of(rows: int, places: int, device: torch.device) -> int:
    """Return how many parts each of so many rows has.

    It is a power of two, such that programs fill the device four times.
    """
    wanted = min(4 * processors(device) // max(rows, 1), -(-places // _LEAST), 64)
    return 1 << max(wanted, 1).bit_length() - 1


def of_parts(o: Tensor, parts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return room for what all parts store, `found`, `most` and `total`; one part alone stores o."""
    if parts == 1:
        return o, o, o
    batch, _, heads, value_dim = o.shape
    found, most, total = (
        o.new_empty((batch * heads, parts, *more), dtype=torch.float32) for more in ((value_dim,), (), ())
    )
    return found, most, total


def launch(widest: int) -> dict[str, int]:
    """Return the parameters of a launch for heads of so many dimensions: a tile of 4,096 numbers at a time.

    On an H200 two warps with three stages are at most 3 % slower than the fastest of 36 launches (bf16, heads
    of 64 and 128, 1 to 64 sequences, caches of 1,025 and 4,097 places).
    """
    return {"C": max(16, min(64, 4096 // widest)), "STAGES": 3, "num_warps": 2}


@operator("cached_attention", differentiable=False)
def decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    here: Tensor,
    there: Tensor,
    slopes: Tensor | None,
    c_q: Tensor | None,
    c_k: Tensor | None,
    window: int | None,
    scale: float,
) -> Tensor:
    """Return o [B, 1, H, V]; arguments are those of `attention`, with slopes for every sequence [B, H].

    Hk may be less than H.
    """
    (batch, _, heads, key_dim), (places, key_heads, value_dim) = q.shape, v.shape[1:]
    q, here, there = q.contiguous(), here.contiguous(), there.contiguous()
    k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (k, v))
    c_q, c_k = (None if c is None else c.contiguous() for c in (c_q, c_k))
    slopes = slopes if slopes is None or slopes.stride(1) == 1 else slopes.contiguous()
    rows = batch * heads
    parts = parts_of(rows, places, v.device)
    o = v.new_empty((batch, 1, heads, value_dim))
    found, most, total = of_parts(o, parts)
    sizes: dict[str, Any] = {"V": value_dim, "BV": power_of_two(value_dim), "PARTS": parts}
    keys = power_of_two(key_dim)
    _part[(parts * rows,)](
        q, k, v, here, there, slopes, c_q, c_k, found, most, total,
        places, window or 0, scale, *k.stride()[:3], *v.stride()[:3],
        0 if slopes is None else slopes.stride(0), H=heads, HK=key_heads,
        K=key_dim, BK=keys, NOTHING=EMPTY,
        WINDOW=window is not None, SLOPES=slopes is not None, GATED=c_q is not None,
        **launch(max(keys, sizes["BV"])), **sizes,
    )  # fmt: skip
    if parts > 1:
        join(found, most, total, o, sizes)
    return o


def join(found: Tensor, most: Tensor, total: Tensor, o: Tensor, sizes: dict[str, int]) -> None:
    """Join the results of all parts to o [B, 1, H, V]; sizes are V, BV and PARTS of `_joined`."""
    _joined[(most.shape[0],)](found, most, total, o, num_warps=4, **sizes)


@decode.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
    return v.new_empty((*q.shape[:3], v.shape[3]))


fold_replicas(decode)
