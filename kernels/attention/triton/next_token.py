"""Softmax attention's next token on a GPU: turned, written into its cache and read beside all that is there.

Tokens stand in a cache in order, position p at place p mod S, so the number of tokens so far says where each
stands, and no position is read. A program has a part of the places of one head. If several share a head, a
second kernel joins their results, as for a cache in any order (`decoding`).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.attention.triton.decoding import join, launch, met, of_parts, parts_of, softmaxes_joined
from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.decay import to_base_2
from linbench.kernels.matrix_state.triton.launch import power_of_two
from linbench.kernels.rotary.triton import exponent_of, turns


@triton.jit
def _turned(x, channel, position, exponent, K: tl.constexpr, HALF: tl.constexpr):
    """Return channels of a head at x in float32, pairs i and i + HALF turned as `rotate_at` does."""
    here = tl.load(x + channel, mask=channel < K, other=0.0)
    if HALF > 0:
        first = channel < HALF
        other = tl.where(first, channel + HALF, channel - HALF)
        beside = tl.load(x + other, mask=(channel < 2 * HALF), other=0.0).to(tl.float32)
        cos, sin = turns(channel % HALF, position, exponent)
        both = here.to(tl.float32) * cos + tl.where(first, -beside, beside) * sin
        here = tl.where(channel < 2 * HALF, both.to(here.dtype), here)
    return here.to(tl.float32)


@triton.jit(do_not_specialize=["B", "S"])
def _next(
    q, k, v, keys, values, there, seen, scales, slopes, gate, left, left_after, found, most, total, after,
    fits, B, S, q_b, q_h, k_b, k_h, v_b, v_h, scale, exponent,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr, HALF: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, BB: tl.constexpr, PARTS: tl.constexpr,
    SCALES: tl.constexpr, SLOPES: tl.constexpr, GATED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Attend from q to a part of the cache, and in the first part to the token itself. Grid (PARTS of B H).

    Takes q [B, 1, H, K], k and v [B, 1, HK, K or V] of one token, keys and values [B, HK, S, K or V], there
    [B, S], seen [B], scales and slopes [H], gate [B, 1, H], left [B, S, H]. The first part writes the token
    into keys, values and there. Every part stores what is left of its keys by the gate to left_after. Stores
    after [B] and fits [1], the results of `read_next`; with PARTS > 1, for every part the largest score to
    base 2 and the sum of weights [B, H, PARTS], and the weighted sum of values [B, H, PARTS, V]; otherwise o.
    """
    part, bh = place_in_grid(PARTS)
    batch, head = bh // H, bh % H
    shared = head // (H // HK)
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    now = tl.load(seen + batch)
    place, used = now % S, tl.minimum(now, S)
    factor = to_base_2(tl.load(scales + head).to(tl.float32) if SCALES else scale)
    q_m = _turned(q + batch * q_b + head * q_h, ks, now, exponent, K, HALF) * factor
    cache = (batch * HK + shared) * S
    most_m, total_m = tl.full([C], float("-inf"), tl.float32), tl.zeros([C], tl.float32)
    out = tl.zeros([C, BV], tl.float32)
    if part == 0:  # the token sees itself
        k_m = _turned(k + batch * k_b + shared * k_h, ks, now, exponent, K, HALF).to(keys.dtype.element_ty)
        v_m = tl.load(v + batch * v_b + shared * v_h + vs, mask=vs < V, other=0.0).to(values.dtype.element_ty)
        itself = tl.where(i == 0, tl.sum(k_m.to(tl.float32) * q_m, axis=0), float("-inf"))
        most_m, total_m, out = met(most_m, total_m, out, itself, v_m.to(tl.float32)[None, :])
        if head % (H // HK) == 0:
            tl.store(keys + (cache + place) * K + ks, k_m, mask=ks < K)
            tl.store(values + (cache + place) * V + vs, v_m, mask=vs < V)
        if GATED:
            tl.store(left_after + (batch * S + place) * H + head, 0.0)
        if head == 0:
            tl.store(there + batch * S + place, now)
            tl.store(after + batch, now + 1)
        if bh == 0:
            rows = tl.arange(0, BB)
            tl.store(fits, tl.max(tl.load(seen + rows, mask=rows < B, other=0), axis=0) < S)
    share = tl.cdiv(tl.cdiv(used, C), PARTS) * C
    for n in tl.range(part * share, tl.minimum(part * share + share, used), C, num_stages=STAGES):
        at = n + i
        old = (at < used) & (at != place)
        rows = (cache + at)[:, None]
        k_n = tl.load(keys + rows * K + ks[None, :], mask=(at < used)[:, None] & (ks[None, :] < K), other=0.0)
        v_n = tl.load(
            values + rows * V + vs[None, :], mask=(at < used)[:, None] & (vs[None, :] < V), other=0.0
        )
        s = tl.sum(k_n.to(tl.float32) * q_m[None, :], axis=1)
        if GATED:
            kept = (batch * S + at) * H + head
            left_n = tl.load(left + kept, mask=old, other=0.0) + tl.load(gate + bh)
            tl.store(left_after + kept, left_n, mask=old)
            s += to_base_2(left_n)
        if SLOPES:
            ago = place - at + tl.where(at > place, S, 0)
            s -= to_base_2(tl.load(slopes + head).to(tl.float32) * ago.to(tl.float32))
        s = tl.where(old, s, float("-inf"))
        most_m, total_m, out = met(most_m, total_m, out, s, v_n.to(tl.float32))
    highest, whole, out_m = softmaxes_joined(most_m, total_m, out)
    if PARTS > 1:
        to = bh * PARTS + part
        tl.store(most + to, highest)
        tl.store(total + to, whole)
        tl.store(found + to * V + vs, out_m, mask=vs < V)
    else:
        tl.store(found + bh * V + vs, (out_m / whole).to(found.dtype.element_ty), mask=vs < V)


def read_next(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    there: Tensor,
    seen: Tensor,
    turned: int,
    base: float,
    slopes: Tensor | None,
    gates: tuple[Tensor, Tensor] | None,
    scale: float | Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Attend from one more token and keep it; arguments and results are those of `caches.read_next`."""
    (batch, _, heads, key_dim), (_, key_heads, places, value_dim) = q.shape, values.shape
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    seen, o = seen.contiguous(), v.new_empty(batch, 1, heads, value_dim)
    after, fits = seen.new_empty(batch), seen.new_empty(1, dtype=torch.bool)
    gate, left = (None, None) if gates is None else (x.contiguous() for x in gates)
    left_after = None if left is None else torch.zeros_like(left)  # of empty places, which no program visits
    scales = scale if isinstance(scale, Tensor) else None
    factor = 1.0 if scales is not None else key_dim**-0.5 if scale is None else float(scale)
    sizes: dict[str, Any] = {"V": value_dim, "BV": power_of_two(value_dim)}
    key_block = power_of_two(key_dim)
    sizes["PARTS"] = parts = parts_of(batch * heads, places, v.device)
    found, most, total = of_parts(o, parts)
    half = turned // 2
    _next[(parts * batch * heads,)](
        q, k, v, keys, values, there, seen, scales, slopes, gate, left, left_after, found, most, total, after,
        fits, batch, places, q.stride(0), q.stride(2), k.stride(0), k.stride(2), v.stride(0), v.stride(2),
        factor, exponent_of(base, half), H=heads, HK=key_heads, K=key_dim, BK=key_block, HALF=half,
        BB=power_of_two(batch), SCALES=scales is not None, SLOPES=slopes is not None,
        GATED=gate is not None, **launch(max(key_block, sizes["BV"])), **sizes,
    )  # fmt: skip
    if parts > 1:
        join(found, most, total, o, sizes)
    return o, after, fits, left_after
