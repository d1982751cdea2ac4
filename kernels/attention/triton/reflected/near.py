"""Attention of a block of queries to the blocks before it in its own span, on a GPU.

A query goes left, a block of keys at a time: q . k, then q <- q - q P. Products q P cannot be undone, so
backward needs it as it met each block: there are as many of these as a span has blocks, and as there are
spans. They are made again by `walk`.
"""

import triton
import triton.language as tl

from linbench.kernels.attention.triton.reflected.sums import (
    gates_between,
    gates_between_transposed,
    load_sums,
)
from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.decay import to_base_2
from linbench.kernels.matrix_state.triton.tiles import (
    dot,
    load_rows,
    load_square,
    load_square_transposed,
    load_transposed,
    store_rows,
)


@triton.jit
def past(q, P, ks, K: tl.constexpr, DT: tl.constexpr):
    """Return queries after they went through a block or a span, q - q P."""
    return q - dot(q, load_rows(P, ks, K, K, ks, K), DT)


@triton.jit
def before(dq, P, ks, K: tl.constexpr, DT: tl.constexpr):
    """Return gradients of queries before they went through a block or a span, dq - dq P^T."""
    return dq - dot(dq, load_transposed(P, ks, K, K, ks, K), DT)


@triton.jit(do_not_specialize=["T", "N", "S"])
def read(
    queries, own, keys, P, v, sums, lefts, o, lse, T, N, S,
    SV: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, GATED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute o [B H, N C, V] of a span and lse [B H, N C], the logarithm to base 2 of the sum of weights.

    lefts [B H, N C, K] are queries at their span's start. Grid (N of every B H). queries, keys [B H, N C, K];
    own [B H, N, C, C]; P [B H, N, K, K]; v [B, T, H, V], with tokens SV apart; sums [B H, 2, T].
    """
    number, bh = place_in_grid(N)
    block = N - 1 - number
    start, first = block // S * S, bh * N  # the span's first block; the sequence's among all
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    v_at = v + bh // H * T * SV + bh % H * V
    high, low = load_sums(sums, bh, block * C + i, T, GATED)
    q_m = load_rows(queries + (first + block) * C * K, i, C, K, ks, K)
    s = to_base_2(load_square(own + (first + block) * C * C, C)) + gates_between(high, low, high, low)
    s = tl.where(i[:, None] >= i[None, :], s, float("-inf"))
    most = tl.max(s, axis=1)
    p = tl.exp2(s - most[:, None])
    total = tl.sum(p, axis=1)
    out = dot(p.to(DT), load_rows(v_at + block * C * SV, i, T - block * C, SV, vs, V), DT)
    for back in range(block - start):
        n = block - 1 - back
        high_n, low_n = load_sums(sums, bh, n * C + i, T, GATED)
        s = to_base_2(dot(q_m, load_transposed(keys + (first + n) * C * K, i, C, K, ks, K), DT))
        s += gates_between(high, low, high_n, low_n)
        more = tl.maximum(most, tl.max(s, axis=1))
        p, kept = tl.exp2(s - more[:, None]), tl.exp2(most - more)
        total = total * kept + tl.sum(p, axis=1)
        v_n = load_rows(v_at + n * C * SV, i, T - n * C, SV, vs, V)
        out = dot(p.to(DT), v_n, DT, out * kept[:, None])
        most = more
        q_m = past(q_m, P + (first + n) * K * K, ks, K, DT)
    store_rows(o + (first + block) * C * V, i, C, V, vs, V, out / total[:, None])
    store_rows(lefts + (first + block) * C * K, i, C, K, ks, K, q_m)
    tl.store(lse + (first + block) * C + i, most + tl.log2(total))


@triton.jit(do_not_specialize=["T", "N", "S", "G"])
def walk(
    queries, P, P_span, o, do, near, far, delta, T, N, S, G,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Store queries as they meet each block and span to their left, and delta [B H, N C], o . do.

    near [B H, S - 1, N C, K] at the block's number in its span; far [B H, G, N C, K] at the span's number.
    o, do [B, T, H, V]. Grid (N of every B H).
    """
    number, bh = place_in_grid(N)
    block = N - 1 - number
    span = block // S
    start = span * S
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    at = ((bh // H * T + block * C) * H + bh % H) * V
    o_m = load_rows(o + at, i, T - block * C, H * V, vs, V).to(tl.float32)
    do_m = load_rows(do + at, i, T - block * C, H * V, vs, V).to(tl.float32)
    tl.store(delta + (bh * N + block) * C + i, tl.sum(o_m * do_m, axis=1))
    q_m = load_rows(queries + (bh * N + block) * C * K, i, C, K, ks, K)
    for back in range(block - start):
        n = block - 1 - back
        store_rows(near + ((bh * (S - 1) + n - start) * N + block) * C * K, i, C, K, ks, K, q_m)
        q_m = past(q_m, P + (bh * N + n) * K * K, ks, K, DT)
    for back in range(span):
        g = span - 1 - back
        store_rows(far + ((bh * G + g) * N + block) * C * K, i, C, K, ks, K, q_m)
        q_m = past(q_m, P_span + (bh * G + g) * K * K, ks, K, DT)


@triton.jit(do_not_specialize=["T", "N", "S"])
def back(
    near, dnear, keys, P, v, sums, lse, delta, do, dqueries, dc, T, N, S,
    SV: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, GATED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Carry gradients dqueries [B H, N C, K] from the span's start, where they are given, to the block's.

    Those past each block are stored in dnear as queries are in `near`. The queries' dc [B H, N C] is zero but
    for the rounding of delta, by which every score's gradient is less; it is added all the same, so that the
    rounding is not left to the keys alone. Grid (N of every B H).
    """
    number, bh = place_in_grid(N)
    block = N - 1 - number
    start, here = block // S * S, (bh * N + block) * C
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    v_at = v + bh // H * T * SV + bh % H * V
    high, low = load_sums(sums, bh, block * C + i, T, GATED)
    lse_m, delta_m = tl.load(lse + here + i), tl.load(delta + here + i)
    do_at = do + ((bh // H * T + block * C) * H + bh % H) * V
    do_m = load_rows(do_at, i, T - block * C, H * V, vs, V)
    dq_m, dc_m = load_rows(dqueries + here * K, i, C, K, ks, K), tl.zeros([C], tl.float32)
    for n in range(start, block):
        at = ((bh * (S - 1) + n - start) * N + block) * C * K
        store_rows(dnear + at, i, C, K, ks, K, dq_m)
        k_n = keys + (bh * N + n) * C * K
        high_n, low_n = load_sums(sums, bh, n * C + i, T, GATED)
        q_m = load_rows(near + at, i, C, K, ks, K)
        s = to_base_2(dot(q_m, load_transposed(k_n, i, C, K, ks, K), DT))
        s += gates_between(high, low, high_n, low_n)
        dp = dot(do_m, load_transposed(v_at + n * C * SV, i, T - n * C, SV, vs, V), DT)
        ds = tl.exp2(s - lse_m[:, None]) * (dp - delta_m[:, None])
        dc_m += tl.sum(ds, axis=1)
        dq_m = before(dq_m, P + (bh * N + n) * K * K, ks, K, DT)
        dq_m = dot(ds.to(DT), load_rows(k_n, i, C, K, ks, K), DT, dq_m)
    store_rows(dqueries + here * K, i, C, K, ks, K, dq_m)
    if GATED:
        tl.store(dc + here + i, tl.load(dc + here + i) + dc_m)


@triton.jit(do_not_specialize=["T", "N", "S"])
def collect(
    near, dnear, own, keys, v, sums, lse, delta, do, down, dkeys, dP, dvalues, dv, dc, T, N, S,
    SV: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, GATED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Sum over the queries of each block and of those right of it in its span: dkeys, dP, dv and down.

    down [B H, N, C, C] is the gradient of `own`; dv [B, T, H, V] has dvalues [B H, N C, V] added, which is
    what later spans give. dc [B H, N C] of queries is added to. Grid (N of every B H).
    """
    n, bh = place_in_grid(N)
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    here, square = (bh * N + n) * C, (bh * N + n) * C * C
    stop, start = tl.minimum(N, (n // S + 1) * S), n // S * S
    v_at = v + (bh // H * T + n * C) * SV + bh % H * V
    do_at = do + (bh // H * T * H + bh % H) * V
    k_n, v_n = load_rows(keys + here * K, i, C, K, ks, K), load_rows(v_at, i, T - n * C, SV, vs, V)
    high, low = load_sums(sums, bh, n * C + i, T, GATED)
    dv_n = load_rows(dvalues + here * V, i, C, V, vs, V)
    dc_n = tl.zeros([C], tl.float32)
    # of its own queries
    s = to_base_2(load_square_transposed(own + square, C)) + gates_between_transposed(high, low, high, low)
    p = tl.where(i[None, :] >= i[:, None], tl.exp2(s - tl.load(lse + here + i)[None, :]), 0.0)
    do_m = do_at + n * C * H * V
    dv_n = dot(p.to(DT), load_rows(do_m, i, T - n * C, H * V, vs, V), DT, dv_n)
    dp = dot(v_n, load_transposed(do_m, i, T - n * C, H * V, vs, V), DT)
    ds = p * (dp - tl.load(delta + here + i)[None, :])
    tl.store(down + square + i[None, :] * C + i[:, None], ds.to(down.dtype.element_ty))
    if GATED:
        dc_n += tl.sum(ds, axis=0) - tl.sum(ds, axis=1)
    dk_n, dP_n = tl.zeros([C, BK], tl.float32), tl.zeros([BK, BK], tl.float32)
    for block in range(n + 1, stop):
        at, row = ((bh * (S - 1) + n - start) * N + block) * C * K, (bh * N + block) * C
        high_m, low_m = load_sums(sums, bh, block * C + i, T, GATED)
        across = load_transposed(near + at, i, C, K, ks, K)
        s = to_base_2(dot(k_n, across, DT)) + gates_between_transposed(high_m, low_m, high, low)
        p = tl.exp2(s - tl.load(lse + row + i)[None, :])
        do_m = do_at + block * C * H * V
        dv_n = dot(p.to(DT), load_rows(do_m, i, T - block * C, H * V, vs, V), DT, dv_n)
        dp = dot(v_n, load_transposed(do_m, i, T - block * C, H * V, vs, V), DT)
        ds = p * (dp - tl.load(delta + row + i)[None, :])
        dk_n = dot(ds.to(DT), load_rows(near + at, i, C, K, ks, K), DT, dk_n)
        dP_n -= dot(across, load_rows(dnear + at, i, C, K, ks, K), DT)
        dc_n -= tl.sum(ds, axis=1)
    store_rows(dkeys + here * K, i, C, K, ks, K, dk_n)
    store_rows(dP + (bh * N + n) * K * K, ks, K, K, ks, K, dP_n)
    store_rows(dv + ((bh // H * T + n * C) * H + bh % H) * V, i, T - n * C, H * V, vs, V, dv_n)
    if GATED:
        tl.store(dc + here + i, tl.load(dc + here + i) + dc_n)
