"""The split schedule, backward: `write_gradients`, `walk_back`, `gradients`, and `value_gradients` where values are not the writes."""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.chunk import (
    kept_gradient,
    looked_at,
    place,
    state_products,
    store_key_gradients,
    taken_over,
)
from linbench.kernels.matrix_state.triton.decay import load_decay, whole
from linbench.kernels.matrix_state.triton.tiles import dot, load_rows, load_transposed, store_rows


@triton.jit
def write_gradients(
    do, squares, dwrites, scale, T, H, HK, K, V,
    C: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Grid (N, B H): gradient of the writes z from the outputs of their own chunk."""
    n, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    _, gates, _, _, square = place(bh, n, T, H, HK, K, V, C, DECAY, UPDATE)
    cs = tl.arange(0, C)
    rows = n * C + cs
    a_t = load_transposed(squares + square, cs, C, C, cs, C)
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        dz = dot(a_t, load_rows(do + gates * V, rows, T, H * V, vs, V), DT)
        store_rows(dwrites + gates * V, rows, T, H * V, vs, V, dz)


@triton.jit
def walk_back(
    q, k, g, b, do, dlast, dfirst, dstates, dwrites, erasers, scale, T, H, HK, K, V,
    C: tl.constexpr, ALL_K: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr, Q_BEFORE: tl.constexpr,
    STATE: tl.constexpr, DLAST: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Grid (V / BV, B H): the gradient of the state at the end of every chunk, and all of the gradient of the writes z."""
    vs, bh = tl.program_id(0) * BV + tl.arange(0, BV), tl.program_id(1).to(tl.int64)
    keys, gates, decays, g_stride, _ = place(bh, 0, T, H, HK, K, V, C, DECAY, UPDATE)
    ks, cs = tl.arange(0, ALL_K), tl.arange(0, C)
    N = tl.cdiv(T, C)
    dstate = tl.zeros([ALL_K, BV], tl.float32)
    if DLAST:
        dstate += load_rows(dlast + bh * K * V, ks, K, V, vs, V)
    for m in range(0, N):
        n = N - 1 - m
        rows = n * C + cs
        store_rows(dstates + (bh * N + n) * K * V, ks, K, V, vs, V, dstate)
        q_t = load_transposed(q + keys, rows, T, HK * K, ks, K).to(DT)
        key = load_rows((b if UPDATE == "low_rank" else k) + keys, rows, T, HK * K, ks, K).to(DT)
        do_n = load_rows(do + gates * V, rows, T, H * V, vs, V)
        g_n = load_decay(g + decays if DECAY != "none" else g, rows, T, g_stride, ks, K, DECAY, False)
        g_t = load_decay(g + decays if DECAY != "none" else g, rows, T, g_stride, ks, K, DECAY, True)
        dz = load_rows(dwrites + gates * V, rows, T, H * V, vs, V) + taken_over(key, dstate, g_n, C, DECAY, DT)
        store_rows(dwrites + gates * V, rows, T, H * V, vs, V, dz)
        dstate = looked_at(whole(dstate, g_t, DECAY), q_t, scale * do_n, g_n, g_t, C, DECAY, Q_BEFORE, DT)
        if UPDATE != "add":
            dstate -= dot(load_transposed(erasers + gates * K, rows, T, H * K, ks, K), dz, DT)
    if STATE:
        store_rows(dfirst + bh * K * V, ks, K, V, vs, V, dstate)


@triton.jit
def gradients(
    q, k, v, g, beta, p, b, states, writes, squares, do, dstates, dwrites, dq, dk, dg, dbeta, dp, db, scale, T, H, HK, K, V,
    C: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, ALL_V: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr,
    ERASE: tl.constexpr, Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Grid (N, B H, K / BK): all that is left to do once the states and their gradients are known.

    Every block of keys leaves its part of the gradients of beta and of a scalar decay in a place of its own.
    """
    n, bh, block_k = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    keys, gates, decays, g_stride, square = place(bh, n, T, H, HK, K, V, C, DECAY, UPDATE)
    ks, cs = block_k * BK + tl.arange(0, BK), tl.arange(0, C)
    rows = n * C + cs
    squares += square
    states += (bh * tl.cdiv(T, C) + n) * K * V
    dstates += (bh * tl.cdiv(T, C) + n) * K * V
    part = block_k * tl.num_programs(1).to(tl.int64) * T
    if DECAY != "none":
        g += decays
    if DECAY == "scalar":
        dg += part
    if UPDATE == "delta":
        dbeta += part
    q_n = load_rows(q + keys, rows, T, HK * K, ks, K).to(DT)
    k_n = load_rows(k + keys, rows, T, HK * K, ks, K).to(DT)
    g_n = load_decay(g, rows, T, g_stride, ks, K, DECAY, False)
    g_t = load_decay(g, rows, T, g_stride, ks, K, DECAY, True)
    key, p_n, beta_n = k_n, k_n, tl.zeros([C], tl.float32)
    if UPDATE == "low_rank":
        key = load_rows(b + keys, rows, T, HK * K, ks, K).to(DT)
    if ERASE:
        p_n = load_rows(p + keys, rows, T, HK * K, ks, K).to(DT)
    if UPDATE == "delta":
        beta_n = tl.load(beta + gates + rows * H, mask=rows < T, other=0.0).to(tl.float32)

    kept = tl.zeros([1, BK] if DECAY == "vector" else [1], tl.float32)
    dq_n, dp_n, dkey, dk_n = tl.zeros([C, BK], tl.float32), tl.zeros([C, BK], tl.float32), tl.zeros([C, BK], tl.float32), tl.zeros([C, BK], tl.float32)
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        do_n = load_rows(do + gates * V, rows, T, H * V, vs, V).to(DT)
        v_n = load_rows(v + gates * V, rows, T, H * V, vs, V).to(DT)
        z, seen = v_n, do_n
        if UPDATE != "add":
            z = load_rows(writes + gates * V, rows, T, H * V, vs, V)
            seen = seen_gradient(squares, dwrites + gates * V, rows, cs, vs, T, H, V, C, UPDATE, DT)
        state_t, dstate_t = load_transposed(states, ks, K, V, vs, V), load_transposed(dstates, ks, K, V, vs, V)
        if DECAY != "none":
            kept += kept_gradient(tl.sum(state_t.to(tl.float32) * dstate_t, axis=0), g_t, DECAY)
        through = state_products(do_n, v_n, z, seen, state_t, dstate_t, g_n, scale, DECAY, UPDATE, Q_BEFORE, P_BEFORE, DT)
        dq_n, dkey = dq_n + through[0], dkey + through[2]
        if UPDATE != "add":
            dp_n += through[1]
        if UPDATE == "low_rank":
            dk_n += through[3]
    vs = tl.arange(0, ALL_V)
    do_n = load_rows(do + gates * V, rows, T, H * V, vs, V).to(DT)
    v_n = load_rows(v + gates * V, rows, T, H * V, vs, V).to(DT)
    z, seen, dbeta_n = v_n, do_n, beta_n
    if UPDATE != "add":
        z = load_rows(writes + gates * V, rows, T, H * V, vs, V)
        seen = seen_gradient(squares, dwrites + gates * V, rows, cs, vs, T, H, V, C, UPDATE, DT)
    if UPDATE == "delta":
        dbeta_n = tl.where(block_k == 0, -tl.sum(seen.to(tl.float32) * v_n, axis=1), 0.0)
    store_key_gradients(
        q_n, k_n, key, p_n, do_n, v_n, z, seen, beta_n, dbeta_n, g_n, dq_n, dp_n, dkey, dk_n, kept, scale,
        dq, dk, dg, dbeta, dp, db, gates, decays, g_stride, rows, ks, T, H, K,
        C, LEVELS, DECAY, UPDATE, ERASE, Q_BEFORE, P_BEFORE, DT,
    )  # fmt: skip


@triton.jit
def seen_gradient(squares, dwrites, rows, cs, vs, T, H, V, C: tl.constexpr, UPDATE: tl.constexpr, DT: tl.constexpr):
    """[C, V]: gradient of what p reads, X^T dz; the delta rule subtracts that."""
    dr = dot(load_transposed(squares + C * C, cs, C, C, cs, C), load_rows(dwrites, rows, T, H * V, vs, V), DT)
    return (-dr if UPDATE == "delta" else dr).to(DT)


@triton.jit
def value_gradients(
    k, g, beta, squares, do, dstates, dwrites, dv, T, H, HK, K, V,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Grid (N, B H): gradient of the values, where these are not the writes."""
    n, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    keys, gates, decays, g_stride, square = place(bh, n, T, H, HK, K, V, C, DECAY, UPDATE)
    cs = tl.arange(0, C)
    rows = n * C + cs
    squares += square
    dstates += (bh * tl.cdiv(T, C) + n) * K * V
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        dr = dot(load_transposed(squares + C * C, cs, C, C, cs, C), load_rows(dwrites + gates * V, rows, T, H * V, vs, V), DT)
        if UPDATE == "delta":
            dv_n = tl.load(beta + gates + rows * H, mask=rows < T, other=0.0).to(tl.float32)[:, None] * dr
        else:
            dv_n = dot(load_transposed(squares + 2 * C * C, cs, C, C, cs, C), load_rows(do + gates * V, rows, T, H * V, vs, V), DT)
            dv_n = dot(load_transposed(squares + 3 * C * C, cs, C, C, cs, C), dr, DT, dv_n)
            for key_block in range(0, tl.cdiv(K, BK)):
                ks = key_block * BK + tl.arange(0, BK)
                g_n = load_decay(g + decays if DECAY != "none" else g, rows, T, g_stride, ks, K, DECAY, False)
                k_n = load_rows(k + keys, rows, T, HK * K, ks, K).to(DT)
                dv_n += taken_over(k_n, load_rows(dstates, ks, K, V, vs, V), g_n, C, DECAY, DT)
        store_rows(dv + gates * V, rows, T, H * V, vs, V, dv_n)
