"""The split schedule, the end of backward: `gradients`, and for a scalar decay `summed_gradients`."""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.bonus import load_bonus, place_of_parts
from linbench.kernels.matrix_state.triton.chunk import (
    kept_gradient,
    later_readings,
    place,
    place_in_grid,
    place_of_decays,
    rows_of_grid,
    solved_gradients,
    state_products,
    store_key_gradients,
    stored_both,
    stored_scores,
)
from linbench.kernels.matrix_state.triton.decay import chunk_decay, decay_gradients, load_decay
from linbench.kernels.matrix_state.triton.scores import both_decayed
from linbench.kernels.matrix_state.triton.tiles import (
    dot,
    extended_dot,
    load_rows,
    load_square_transposed,
    load_transposed,
    rounded,
    store_rows,
    token_of,
)


@triton.jit
def gradients(
    q, k, v, g, sums, beta, p, b, u, states, writes, squares,
    inverses, dsquares, do, dstates, dwrites, key_end, k_end, kept,
    dq, dk, dv, dg, dsums, dbeta, dp, db, du, scale, T, group,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr,
    ERASE: tl.constexpr, Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr,
    STEPS: tl.constexpr, JOINED: tl.constexpr, EXTENDED: tl.constexpr,
    EXTENDED_BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute all that is left once the states, the scores and their gradients are known.

    Grid (N of every B H, K / BK). JOINED, the gradients of scores, too, and dv. Every block of keys stores
    its part of the gradient of beta, and for a scalar decay of what `summed_gradients` sums, in a place of
    its own.
    """
    n, bh = place_in_grid(tl.cdiv(T, C))
    block_k = tl.program_id(1)
    keys, gates = place(bh, T, H, HK, K)
    queries, outputs = place(bh, T // STEPS, H, HK, K)
    decays, g_stride = place_of_decays(outputs, H, K, DECAY)
    chunk = bh * tl.cdiv(T, C) + n
    ks = block_k * BK + tl.arange(0, BK)
    rows = n * C + tl.arange(0, C)
    tokens = token_of(rows, T, Q_BEFORE, STEPS)
    states += chunk * K * V
    dstates += chunk * K * V
    part = block_k * rows_of_grid(tl.cdiv(T, C)) * T
    if DECAY != "none":
        g += decays
    if DECAY == "scalar":
        dsums += block_k * rows_of_grid(tl.cdiv(T, C)) * tl.cdiv(T, C) * 3 * C
    if UPDATE == "delta":
        dbeta += part
    q_n = load_rows(q + queries, tokens, T // STEPS, HK * K, ks, K).to(DT)
    k_n = load_rows(k + keys, rows, T, HK * K, ks, K).to(DT)
    g_n = load_decay(g, sums, chunk, rows, T, g_stride, ks, K, DECAY, False, STEPS, DT)
    key, p_n, beta_n = k_n, k_n, tl.zeros([C], tl.float32)
    if UPDATE == "low_rank":
        key = load_rows(b + keys, rows, T, HK * K, ks, K).to(DT)
    if ERASE:
        p_n = load_rows(p + keys, rows, T, HK * K, ks, K).to(DT)
    if UPDATE == "delta":
        beta_n = tl.load(beta + gates + rows * H, mask=rows < T, other=0.0).to(tl.float32)

    decay = chunk_decay(sums, kept, chunk, ks, K, C, DECAY, DT)
    kept_n = tl.zeros([1, BK], tl.float32) if DECAY == "vector" else 0.0
    dq_n, dp_n, dkey, dk_n = (
        tl.zeros([C, BK], tl.float32),
        tl.zeros([C, BK], tl.float32),
        tl.zeros([C, BK], tl.float32),
        tl.zeros([C, BK], tl.float32),
    )
    da, da_t, dl, dl_t = (
        tl.zeros([C, C], tl.float32),
        tl.zeros([C, C], tl.float32),
        tl.zeros([C, C], tl.float32),
        tl.zeros([C, C], tl.float32),
    )
    da_k, da_kt, dl_k, dl_kt = da, da, da, da
    dbeta_n = tl.zeros([C], tl.float32)
    INSIDE: tl.constexpr = "none" if DECAY == "vector" else DECAY
    plain, key_stride = k + keys, HK * K
    if DECAY == "vector":
        plain, key_stride = (k_end if UPDATE == "low_rank" else key_end) + gates * K, H * K
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        do_n = load_rows(do + outputs * V, tokens, T // STEPS, H * V, vs, V).to(DT)
        z, seen, v_n = do_n, do_n, do_n
        if UPDATE != "delta" or JOINED:
            v_n = load_rows(v + gates * V, rows, T, H * V, vs, V).to(DT)
            z = v_n
        if UPDATE != "add":
            z = load_rows(writes + gates * V, rows, T, H * V, vs, V)
            seen = load_rows(dwrites + gates * V, rows, T, H * V, vs, V)
        if JOINED:
            later = None
            if UPDATE != "delta":
                later = later_readings(plain, key_stride, dstates, g_n, rows, vs, T, K, V, BK, INSIDE, DT)
            if UPDATE == "add":
                dv_n = extended_dot(
                    load_square_transposed(stored_scores(squares, chunk, 0, C, UPDATE), C), do_n, DT, later
                )
            else:
                dr, dv_n = solved_gradients(
                    seen, do_n, later, beta_n, squares, inverses, chunk, C, UPDATE, DT
                )
                seen = (-dr if UPDATE == "delta" else dr).to(DT)
                if UPDATE == "delta":
                    dbeta_n += tl.sum(dr * v_n, axis=1)
                z = rounded(z, EXTENDED_BACK, DT)
                dl, dl_t = extended_dot(seen, tl.trans(z), DT, dl), extended_dot(z, tl.trans(seen), DT, dl_t)
            store_rows(dv + gates * V, rows, T, H * V, vs, V, dv_n)
            da, da_t = extended_dot(do_n, tl.trans(z), DT, da), extended_dot(z, tl.trans(do_n), DT, da_t)
            if UPDATE == "low_rank":
                da_k, da_kt = dot(do_n, tl.trans(v_n), DT, da_k), dot(v_n, tl.trans(do_n), DT, da_kt)
                dl_k, dl_kt = dot(seen, tl.trans(v_n), DT, dl_k), dot(v_n, tl.trans(seen), DT, dl_kt)
        state_t, dstate_t = (
            load_transposed(states, ks, K, V, vs, V),
            load_transposed(dstates, ks, K, V, vs, V),
        )
        if DECAY != "none":
            kept_n += kept_gradient(tl.sum(state_t.to(tl.float32) * dstate_t, axis=0), decay, DECAY)
        through = state_products(do_n, v_n, z, seen, state_t, dstate_t, UPDATE, DT)
        dq_n, dkey = dq_n + through[0], dkey + through[2]
        if UPDATE != "add":
            dp_n += through[1]
        if UPDATE == "low_rank":
            dk_n += through[3]
    if JOINED:
        da, da_t = both_decayed(
            da, da_t, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, EXTENDED_BACK, False, DT
        )
        dl, dl_t = both_decayed(
            dl, dl_t, g_n, 1.0, rows, DECAY, P_BEFORE, True, EXTENDED, EXTENDED and DECAY != "none", DT
        )
        da_k, da_kt = both_decayed(da_k, da_kt, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, False, False, DT)
        dl_k, dl_kt = both_decayed(dl_k, dl_kt, g_n, 1.0, rows, DECAY, P_BEFORE, True, False, False, DT)
    else:
        da, da_t = stored_both(dsquares, chunk, 0, C, UPDATE)
        da = rounded(da, EXTENDED_BACK or DECAY == "vector", DT)
        if UPDATE != "add":
            dl, dl_t = stored_both(dsquares, chunk, 1, C, UPDATE)
            dl_t = rounded(dl_t, DECAY != "none", DT)
        if UPDATE == "low_rank":
            da_k, da_kt = stored_both(dsquares, chunk, 2, C, UPDATE)
            dl_k, dl_kt = stored_both(dsquares, chunk, 3, C, UPDATE)
    u_n, du_n = u, du
    if u is not None:
        u_n, du_n = load_bonus(u, bh, group, H, ks, K), du + place_of_parts(bh, n, tl.cdiv(T, C), H, K)
    store_key_gradients(
        q_n, k_n, key, p_n, u_n, da, da_t, dl, dl_t, da_k, da_kt, dl_k,
        dl_kt, beta_n, dbeta_n, g_n, dq_n, dp_n, dkey, dk_n, kept_n, scale,
        dq, dk, dg, dsums, dbeta, dp, db, du_n, gates, outputs, decays, g_stride, chunk, rows, ks, T, H, K,
        LEVELS, DECAY, UPDATE, ERASE, Q_BEFORE, P_BEFORE, STEPS, DT,
    )  # fmt: skip


@triton.jit
def summed_gradients(
    g, dsums, dg, P, T, H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr,
    C: tl.constexpr, AT_ONCE: tl.constexpr, DECAY: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a scalar decay from what P blocks of keys stored.

    Grid (N / AT_ONCE of every B H).
    """
    N = tl.cdiv(T, C)
    several, bh = place_in_grid(tl.cdiv(N, AT_ONCE))
    _, outputs = place(bh, T // STEPS, H, HK, K)
    decays, g_stride = place_of_decays(outputs, H, K, DECAY)
    stride_p = rows_of_grid(tl.cdiv(N, AT_ONCE)) * N * 3 * C
    decay_gradients(
        g + decays, dsums, dg + decays, bh, several, P, stride_p,
        N, T, g_stride, C, AT_ONCE, STEPS, Q_BEFORE or P_BEFORE,
    )  # fmt: skip
