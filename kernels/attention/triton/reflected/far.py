"""Attention of queries to the spans before their own, on a GPU.

A query goes left, a span at a time. All keys of a span stand at its end, so between two transitions this is
softmax attention by tiles: of M queries, all of one span, and C keys.
"""

import triton
import triton.language as tl

from linbench.kernels.attention.triton.reflected.near import before, past
from linbench.kernels.attention.triton.reflected.sums import (
    gates_between,
    gates_between_transposed,
    load_sums,
)
from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.decay import to_base_2
from linbench.kernels.matrix_state.triton.tiles import dot, load_rows, load_transposed, store_rows


@triton.jit(do_not_specialize=["T", "N", "S", "G"])
def read(
    lefts, ends, P_span, v, sums, near, lse, o, T, N, S, G,
    SV: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, M: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, GATED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute o [B, T, H, V] of near [B H, N C, V], what queries read of their own span; make lse of both.

    Grid (N C / M of every B H). lefts [B H, N C, K] are queries at their span's start; ends [B H, N C, K];
    P_span [B H, G, K, K] with G spans but the last; lse [B H, N C].
    """
    tiles = tl.cdiv(N * C, M)
    number, bh = place_in_grid(tiles)
    tile = tiles - 1 - number
    rows, inside = tile * M + tl.arange(0, M), N * C
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    span = tile * M // (S * C)
    v_at = v + bh // H * T * SV + bh % H * V
    high, low = load_sums(sums, bh, rows, T, GATED)
    q_m = load_rows(lefts + bh * inside * K, rows, inside, K, ks, K)
    out = load_rows(near + bh * inside * V, rows, inside, V, vs, V)
    most = tl.load(lse + bh * inside + rows, mask=rows < inside, other=0.0)
    total = tl.full([M], 1.0, tl.float32)
    for back in range(span):
        g = span - 1 - back
        q_g = q_m.to(DT)
        for n in range(g * S, g * S + S):
            high_n, low_n = load_sums(sums, bh, n * C + i, T, GATED)
            s = to_base_2(dot(q_g, load_transposed(ends + (bh * N + n) * C * K, i, C, K, ks, K), DT))
            s += gates_between(high, low, high_n, low_n)
            more = tl.maximum(most, tl.max(s, axis=1))
            p, kept = tl.exp2(s - more[:, None]), tl.exp2(most - more)
            total = total * kept + tl.sum(p, axis=1)
            v_n = load_rows(v_at + n * C * SV, i, T - n * C, SV, vs, V)
            out = dot(p.to(DT), v_n, DT, out * kept[:, None])
            most = more
        q_m = past(q_m, P_span + (bh * G + g) * K * K, ks, K, DT)
    store_rows(o + (bh // H * T * H + bh % H) * V, rows, T, H * V, vs, V, out / total[:, None])
    tl.store(lse + bh * inside + rows, most + tl.log2(total), mask=rows < inside)


@triton.jit(do_not_specialize=["T", "N", "S", "G"])
def back(
    far, dfar, ends, P_span, v, sums, lse, delta, do, dqueries, dc, T, N, S, G,
    SV: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, M: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, GATED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Carry gradients of queries from the sequence's start to that of their span: dqueries [B H, N C, K].

    Those past each span are stored in dfar as queries are in `far`. dc [B H, N C] as `near.back` has it. Grid
    (tiles of M queries of every B H).
    """
    tiles = tl.cdiv(N * C, M)
    number, bh = place_in_grid(tiles)
    tile = tiles - 1 - number
    rows, inside = tile * M + tl.arange(0, M), N * C
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    span = tile * M // (S * C)
    v_at = v + bh // H * T * SV + bh % H * V
    high, low = load_sums(sums, bh, rows, T, GATED)
    lse_m = tl.load(lse + bh * inside + rows, mask=rows < inside, other=0.0)
    delta_m = tl.load(delta + bh * inside + rows, mask=rows < inside, other=0.0)
    do_m = load_rows(do + (bh // H * T * H + bh % H) * V, rows, T, H * V, vs, V)
    dq_m, dc_m = tl.zeros([M, BK], tl.float32), tl.zeros([M], tl.float32)
    for g in range(span):
        at = (bh * G + g) * inside * K
        store_rows(dfar + at, rows, inside, K, ks, K, dq_m)
        dq_m = before(dq_m, P_span + (bh * G + g) * K * K, ks, K, DT)
        q_g = load_rows(far + at, rows, inside, K, ks, K)
        for n in range(g * S, g * S + S):
            k_n = ends + (bh * N + n) * C * K
            high_n, low_n = load_sums(sums, bh, n * C + i, T, GATED)
            s = to_base_2(dot(q_g, load_transposed(k_n, i, C, K, ks, K), DT))
            s += gates_between(high, low, high_n, low_n)
            dp = dot(do_m, load_transposed(v_at + n * C * SV, i, T - n * C, SV, vs, V), DT)
            ds = tl.exp2(s - lse_m[:, None]) * (dp - delta_m[:, None])
            if GATED:
                dc_m += tl.sum(ds, axis=1)
            dq_m = dot(ds.to(DT), load_rows(k_n, i, C, K, ks, K), DT, dq_m)
    store_rows(dqueries + bh * inside * K, rows, inside, K, ks, K, dq_m)
    if GATED:
        tl.store(dc + bh * inside + rows, dc_m, mask=rows < inside)


@triton.jit(do_not_specialize=["T", "N", "S", "G"])
def collect(
    far, ends, v, sums, lse, delta, do, dends, dvalues, dc, T, N, S, G,
    SV: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, M: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, GATED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Sum over the queries of later spans: dends [B H, N C, K] and dvalues [B H, N C, V] of M keys.

    dc [B H, N C] of queries is added to. Grid (tiles of M keys of the first G spans of every B H).
    """
    number, bh = place_in_grid(G * S * C // M)
    rows, inside = number * M + tl.arange(0, M), N * C
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    span = number * M // (S * C)
    q_at = far + (bh * G + span) * inside * K
    do_at = do + (bh // H * T * H + bh % H) * V
    k_n = load_rows(ends + bh * inside * K, rows, inside, K, ks, K)
    v_n = load_rows(v + bh // H * T * SV + bh % H * V, rows, T, SV, vs, V)
    high, low = load_sums(sums, bh, rows, T, GATED)
    dk_n, dv_n = tl.zeros([M, BK], tl.float32), tl.zeros([M, BV], tl.float32)
    dc_n = tl.zeros([M], tl.float32)
    for block in range((span + 1) * S, N):
        q_m, do_m = q_at + block * C * K, do_at + block * C * H * V
        high_m, low_m = load_sums(sums, bh, block * C + i, T, GATED)
        s = to_base_2(dot(k_n, load_transposed(q_m, i, C, K, ks, K), DT))
        s += gates_between_transposed(high_m, low_m, high, low)
        p = tl.exp2(s - tl.load(lse + bh * inside + block * C + i)[None, :])
        dv_n = dot(p.to(DT), load_rows(do_m, i, T - block * C, H * V, vs, V), DT, dv_n)
        dp = dot(v_n, load_transposed(do_m, i, T - block * C, H * V, vs, V), DT)
        ds = p * (dp - tl.load(delta + bh * inside + block * C + i)[None, :])
        dk_n = dot(ds.to(DT), load_rows(q_m, i, C, K, ks, K), DT, dk_n)
        if GATED:
            dc_n -= tl.sum(ds, axis=1)
    store_rows(dends + bh * inside * K, rows, inside, K, ks, K, dk_n)
    store_rows(dvalues + bh * inside * V, rows, inside, V, vs, V, dv_n)
    if GATED:
        at = dc + bh * inside + rows
        tl.store(at, tl.load(at) + dc_n)


@triton.jit(do_not_specialize=["N", "S", "G"])
def turn(
    far, dfar, dP_span, N, S, G, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, DT: tl.constexpr
):  # fmt: skip
    """Compute dP_span [B H, G, K, K], summed over the queries of later spans. Grid (G of every B H)."""
    span, bh = place_in_grid(G)
    i, ks = tl.arange(0, C), tl.arange(0, BK)
    dP = tl.zeros([BK, BK], tl.float32)
    for block in range((span + 1) * S, N):
        at = ((bh * G + span) * N + block) * C * K
        dP -= dot(load_transposed(far + at, i, C, K, ks, K), load_rows(dfar + at, i, C, K, ks, K), DT)
    store_rows(dP_span + (bh * G + span) * K * K, ks, K, K, ks, K, dP)
