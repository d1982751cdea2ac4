"""The split schedule: what needs no state runs for all chunks at once, and only the state itself is handed from chunk to chunk.

Forward: `solve` (where writes depend on the state), `walk`, `read`. Backward: `write_gradients`, `walk_back`, `gradients`, and
`value_gradients` where values are not the writes. Solving ahead of
the state takes its part of the writes out: z = U - W S with U = X beta v, W = X beta e^G p (delta), or U = X A_ak v, W = -X e^G a.
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.blocks import (
    dot,
    keys_from_start,
    load_decay,
    load_rows,
    load_transposed,
    scores,
    store_rows,
    values_from_start,
    whole,
)
from linbench.kernels.matrix_state.triton.chunk import (
    handed_on,
    inverse_of_writes,
    kept_gradient,
    looked_at,
    place,
    recalled,
    state_products,
    store_key_gradients,
    taken_over,
)


@triton.jit
def solve(
    k, v, g, beta, p, b, writes, erasers, squares, T, H, HK, K, V,
    C: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr,
    ERASE: tl.constexpr, P_BEFORE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Grid (N, B H): the inverse, and U [B, T, H, V] (in `writes`) and W [B, T, H, K]."""
    n, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    keys, gates, decays, g_stride, square = place(bh, n, T, H, HK, K, V, C, DECAY, UPDATE)
    cs = tl.arange(0, C)
    rows = n * C + cs
    erase, key = p if ERASE else k, b if UPDATE == "low_rank" else k
    if DECAY != "none":
        g += decays
    beta_n = tl.zeros([C], tl.float32)
    if UPDATE == "delta":
        beta_n = tl.load(beta + gates + rows * H, mask=rows < T, other=0.0).to(tl.float32)
    a_p, a_pk = tl.zeros([C, C], tl.float32), tl.zeros([C, C], tl.float32)
    for block in range(0, tl.cdiv(K, BK)):
        ks = block * BK + tl.arange(0, BK)
        p_n = load_rows(erase + keys, rows, T, HK * K, ks, K).to(DT)
        g_n = load_decay(g, rows, T, g_stride, ks, K, DECAY, False)
        _, part = scores(p_n, p_n, load_rows(key + keys, rows, T, HK * K, ks, K).to(DT), g_n, C, LEVELS, DECAY, False, True, P_BEFORE, P_BEFORE, DT)
        a_p += part
        if UPDATE == "low_rank":
            _, part = scores(p_n, p_n, load_rows(k + keys, rows, T, HK * K, ks, K).to(DT), g_n, C, LEVELS, DECAY, False, True, P_BEFORE, P_BEFORE, DT)
            a_pk += part
    x = inverse_of_writes(a_p, beta_n, C, LEVELS, UPDATE, DT)
    store_rows(squares + square + C * C, cs, C, C, cs, C, x)
    if UPDATE == "low_rank":
        store_rows(squares + square + 3 * C * C, cs, C, C, cs, C, a_pk)
    for block in range(0, tl.cdiv(K, BK)):
        ks = block * BK + tl.arange(0, BK)
        p_n = load_rows(erase + keys, rows, T, HK * K, ks, K).to(DT)
        g_n = load_decay(g, rows, T, g_stride, ks, K, DECAY, False)
        recall = values_from_start(keys_from_start(p_n, g_n, C, DECAY, P_BEFORE, False, DT), g_n, DECAY, P_BEFORE, DT)
        recall = beta_n[:, None] * recall if UPDATE == "delta" else -recall
        store_rows(erasers + gates * K, rows, T, H * K, ks, K, dot(x, recall, DT))
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        u = load_rows(v + gates * V, rows, T, H * V, vs, V).to(DT)
        u = beta_n[:, None] * u if UPDATE == "delta" else dot(a_pk, u, DT)
        store_rows(writes + gates * V, rows, T, H * V, vs, V, dot(x, u, DT))


@triton.jit
def walk(
    k, v, g, b, first, last, states, writes, erasers, T, H, HK, K, V,
    C: tl.constexpr, ALL_K: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr, STATE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Grid (V / BV, B H): the state at the start of every chunk, and the writes z where U was."""
    vs, bh = tl.program_id(0) * BV + tl.arange(0, BV), tl.program_id(1).to(tl.int64)
    keys, gates, decays, g_stride, _ = place(bh, 0, T, H, HK, K, V, C, DECAY, UPDATE)
    ks, cs = tl.arange(0, ALL_K), tl.arange(0, C)
    N = tl.cdiv(T, C)
    state = tl.zeros([ALL_K, BV], tl.float32)
    if STATE:
        state += load_rows(first + bh * K * V, ks, K, V, vs, V)
    for n in range(0, N):
        rows = n * C + cs
        store_rows(states + (bh * N + n) * K * V, ks, K, V, vs, V, state)
        k_t = load_transposed(k + keys, rows, T, HK * K, ks, K).to(DT)
        g_n = load_decay(g + decays if DECAY != "none" else g, rows, T, g_stride, ks, K, DECAY, False)
        g_t = load_decay(g + decays if DECAY != "none" else g, rows, T, g_stride, ks, K, DECAY, True)
        key_t, v_n = k_t, k_t
        if UPDATE != "delta":
            v_n = load_rows(v + gates * V, rows, T, H * V, vs, V).to(DT)
        z = v_n
        if UPDATE == "low_rank":
            key_t = load_transposed(b + keys, rows, T, HK * K, ks, K).to(DT)
        if UPDATE != "add":
            w = load_rows(erasers + gates * K, rows, T, H * K, ks, K)
            z = (load_rows(writes + gates * V, rows, T, H * V, vs, V) - dot(w, state, DT)).to(DT)
            store_rows(writes + gates * V, rows, T, H * V, vs, V, z)
        state = handed_on(whole(state, g_t, DECAY), key_t, z, g_n, g_t, C, DECAY, DT)
        if UPDATE == "low_rank":
            state = handed_on(state, k_t, v_n, g_n, g_t, C, DECAY, DT)
    store_rows(last + bh * K * V, ks, K, V, vs, V, state)


@triton.jit
def read(
    q, k, v, g, b, o, states, writes, squares, scale, T, H, HK, K, V,
    C: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr,
    Q_BEFORE: tl.constexpr, SAVE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Grid (N, B H): the outputs."""
    n, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    keys, gates, decays, g_stride, square = place(bh, n, T, H, HK, K, V, C, DECAY, UPDATE)
    cs = tl.arange(0, C)
    rows = n * C + cs
    states += (bh * tl.cdiv(T, C) + n) * K * V
    if DECAY != "none":
        g += decays
    a_q, a_qk = tl.zeros([C, C], tl.float32), tl.zeros([C, C], tl.float32)
    for block in range(0, tl.cdiv(K, BK)):
        ks = block * BK + tl.arange(0, BK)
        q_n = load_rows(q + keys, rows, T, HK * K, ks, K).to(DT)
        k_n = load_rows(k + keys, rows, T, HK * K, ks, K).to(DT)
        g_n = load_decay(g, rows, T, g_stride, ks, K, DECAY, False)
        key = k_n
        if UPDATE == "low_rank":
            key = load_rows(b + keys, rows, T, HK * K, ks, K).to(DT)
            part, _ = scores(q_n, q_n, k_n, g_n, C, LEVELS, DECAY, True, False, Q_BEFORE, Q_BEFORE, DT)
            a_qk += scale * part
        part, _ = scores(q_n, q_n, key, g_n, C, LEVELS, DECAY, True, False, Q_BEFORE, Q_BEFORE, DT)
        a_q += scale * part
    if SAVE:
        store_rows(squares + square, cs, C, C, cs, C, a_q)
        if UPDATE == "low_rank":
            store_rows(squares + square + 2 * C * C, cs, C, C, cs, C, a_qk)
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        o_n = tl.zeros([C, BV], tl.float32)
        for key_block in range(0, tl.cdiv(K, BK)):
            ks = key_block * BK + tl.arange(0, BK)
            q_n = load_rows(q + keys, rows, T, HK * K, ks, K).to(DT)
            g_n = load_decay(g, rows, T, g_stride, ks, K, DECAY, False)
            o_n += scale * recalled(q_n, load_rows(states, ks, K, V, vs, V), g_n, C, DECAY, Q_BEFORE, DT)
        o_n = dot(a_q, load_rows((v if UPDATE == "add" else writes) + gates * V, rows, T, H * V, vs, V), DT, o_n)
        if UPDATE == "low_rank":
            o_n = dot(a_qk, load_rows(v + gates * V, rows, T, H * V, vs, V), DT, o_n)
        store_rows(o + gates * V, rows, T, H * V, vs, V, o_n)


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
