"""The split schedule, backward: `write_gradients`, `walk_back`, `value_gradients`, `gradients`; where writes do not depend on the state, nor then the
gradient of the state on theirs: `walk_back`, `write_gradients`, `gradients`. JOINED: `walk_back`, `gradients`, which does the rest for all keys of a chunk."""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.bonus import load_bonus, place_of_parts
from linbench.kernels.matrix_state.triton.chunk import (
    kept_gradient,
    looked_at,
    place,
    place_of_decays,
    solved_gradients,
    state_products,
    store_key_gradients,
    stored_both,
    stored_gradients,
    stored_scores,
    taken_over,
)
from linbench.kernels.matrix_state.triton.decay import decay_gradients, load_decay, scalar_decay, whole, whole_decay
from linbench.kernels.matrix_state.triton.scores import both_decayed, decayed
from linbench.kernels.matrix_state.triton.tiles import (
    dot,
    fine_dot,
    load_rows,
    load_square_transposed,
    load_transposed,
    rounded,
    store_rows,
    store_square,
    token_of,
)


@triton.jit
def later_readings(key, stride, dstate, g, rows, vs, T, K, V, BK: tl.constexpr, DECAY: tl.constexpr, DT: tl.constexpr):
    """[C, BV]: what later chunks give to values that were written under `key`, from the gradient of the state at the chunk's end."""
    dv = tl.zeros([rows.shape[0], vs.shape[0]], tl.float32)
    for block in range(0, tl.cdiv(K, BK)):
        ks = block * BK + tl.arange(0, BK)
        dv += taken_over(load_rows(key, rows, T, stride, ks, K).to(DT), load_rows(dstate, ks, K, V, vs, V), g, rows, DECAY, DT)
    return dv


@triton.jit
def write_gradients(
    k, v, sums, do, writes, squares, dsquares, dstates, dwrites, key_end, scale, T,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr, Q_BEFORE: tl.constexpr, STEPS: tl.constexpr,
    FINE_BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Grid (N, B H): what the outputs of their own chunk give to the writes z, and to q's scores of key and of k.

    Where writes do not depend on the state, after `walk_back`, and with what outputs of later chunks give: all of dv.
    """
    n, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    INSIDE: tl.constexpr = "none" if DECAY == "vector" else DECAY
    keys, gates = place(bh, T, H, HK, K)
    key, key_stride = k + keys, HK * K
    if DECAY == "vector":
        key, key_stride = key_end + gates * K, H * K
    _, outputs = place(bh, T // STEPS, H, HK, K)
    chunk = bh * tl.cdiv(T, C) + n
    rows = n * C + tl.arange(0, C)
    tokens = token_of(rows, T, Q_BEFORE, STEPS)
    a_t = load_square_transposed(stored_scores(squares, chunk, 0, C, UPDATE), C)
    g_n = scalar_decay(sums, chunk, C, DECAY, DT)
    da, da_k = tl.zeros([C, C], tl.float32), tl.zeros([C, C], tl.float32)
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        do_n = load_rows(do + outputs * V, tokens, T // STEPS, H * V, vs, V).to(DT)
        dz = fine_dot(a_t, do_n, DT)
        if UPDATE == "add":
            dz += later_readings(key, key_stride, dstates + chunk * K * V, g_n, rows, vs, T, K, V, BK, INSIDE, DT)
        store_rows(dwrites + gates * V, rows, T, H * V, vs, V, dz)
        z = rounded(load_rows((v if UPDATE == "add" else writes) + gates * V, rows, T, H * V, vs, V), FINE_BACK, DT)
        da = fine_dot(do_n, tl.trans(z), DT, da)
        if UPDATE == "low_rank":
            da_k = dot(do_n, tl.trans(load_rows(v + gates * V, rows, T, H * V, vs, V).to(DT)), DT, da_k)
    store_square(stored_gradients(dsquares, chunk, 0, C, UPDATE), C, decayed(da, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, False, DT))
    if UPDATE == "low_rank":
        store_square(stored_gradients(dsquares, chunk, 2, C, UPDATE), C, decayed(da_k, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, False, DT))


@triton.jit
def walk_back(
    q, k, sums, b, do, dlast, dfirst, squares, dstates, dwrites, erasers, q_start, key_end, kept, scale, T,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr, Q_BEFORE: tl.constexpr,
    STEPS: tl.constexpr, STATE: tl.constexpr, DLAST: tl.constexpr, JOINED: tl.constexpr, FINE_BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Grid (V / BV, B H, K / BK): the gradient of the state at the end of every chunk. Where writes depend on the state, all of the gradient of the writes
    z, too, and BK is all of K."""
    vs, bh = tl.program_id(0) * BV + tl.arange(0, BV), tl.program_id(1).to(tl.int64)
    keys, gates = place(bh, T, H, HK, K)
    queries, outputs = place(bh, T // STEPS, H, HK, K)
    INSIDE: tl.constexpr = "none" if DECAY == "vector" else DECAY
    ks = tl.program_id(2) * BK + tl.arange(0, BK)
    N = tl.cdiv(T, C)
    q, key, key_stride = q + queries, (b if UPDATE == "low_rank" else k) + keys, HK * K
    if DECAY == "vector":
        q, key, key_stride = q_start + outputs * K, key_end + gates * K, H * K
    dstate = tl.zeros([BK, BV], tl.float32)
    if DLAST:
        dstate += load_rows(dlast + bh * K * V, ks, K, V, vs, V)
    if DECAY == "vector":  # loaded two chunks ahead: what multiplies a sum, Triton does not load ahead
        last = bh * N + N - 1
        ahead = tl.join(whole_decay(sums, kept, last, ks, K, C, DECAY, DT), whole_decay(sums, kept, last - tl.minimum(1, N - 1), ks, K, C, DECAY, DT))
    if UPDATE != "add":  # nor what a product is added to, nor what has to be rounded for one
        if JOINED:
            next_a_t = load_square_transposed(stored_scores(squares, bh * N + N - 1, 0, C, UPDATE), C)
        else:
            next_dwrite = load_rows(dwrites + gates * V, (N - 1) * C + tl.arange(0, C), T, H * V, vs, V)
    for m in range(0, N):
        n = N - 1 - m
        rows = n * C + tl.arange(0, C)
        tokens = token_of(rows, T, Q_BEFORE, STEPS)
        if DECAY == "vector":
            decay, later = tl.split(ahead)
            ahead = tl.join(later, whole_decay(sums, kept, bh * N + tl.maximum(n - 2, 0), ks, K, C, DECAY, DT))
        else:
            decay = whole_decay(sums, kept, bh * N + n, ks, K, C, DECAY, DT)
        if UPDATE != "add":
            if JOINED:
                a_t, next_a_t = next_a_t, load_square_transposed(stored_scores(squares, bh * N + tl.maximum(n - 1, 0), 0, C, UPDATE), C)
            else:
                dwrite, next_dwrite = next_dwrite, load_rows(dwrites + gates * V, tl.maximum(n - 1, 0) * C + tl.arange(0, C), T, H * V, vs, V)
        store_rows(dstates + (bh * N + n) * K * V, ks, K, V, vs, V, dstate)
        q_t = load_transposed(q, tokens, T // STEPS, key_stride, ks, K).to(DT)
        do_n = load_rows(do + outputs * V, tokens, T // STEPS, H * V, vs, V)
        g_n = scalar_decay(sums, bh * N + n, C, DECAY, DT)
        if UPDATE != "add":
            key_n = load_rows(key, rows, T, key_stride, ks, K).to(DT)
            if JOINED:
                dwrite = fine_dot(a_t, do_n.to(DT), DT)
            dz = dwrite + taken_over(key_n, dstate, g_n, rows, INSIDE, DT)
            store_rows(dwrites + gates * V, rows, T, H * V, vs, V, dz)
        dstate = looked_at(whole(dstate, decay, DECAY), q_t, do_n, g_n, g_n, scale, rows, INSIDE, Q_BEFORE, False, DT)
        if UPDATE != "add":
            dstate -= fine_dot(load_transposed(erasers + gates * K, rows, T, H * K, ks, K), rounded(dz, FINE_BACK, DT), DT)
    if STATE:
        store_rows(dfirst + bh * K * V, ks, K, V, vs, V, dstate)


@triton.jit
def gradients(
    q, k, v, g, sums, beta, p, b, u, states, writes, squares, inverses, dsquares, do, dstates, dwrites, key_end, k_end, kept,
    dq, dk, dv, dg, dsums, dbeta, dp, db, du, scale, T, group,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr,
    ERASE: tl.constexpr, Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, STEPS: tl.constexpr, JOINED: tl.constexpr, FINE: tl.constexpr,
    FINE_BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Grid (N, B H, K / BK): all that is left to do once the states, the scores and their gradients are known; JOINED, the latter, too, and dv.

    Every block of keys leaves its part of the gradient of beta, and of what `summed_gradients` sums for a scalar decay, in a place of its own.
    """
    n, bh, block_k = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    keys, gates = place(bh, T, H, HK, K)
    queries, outputs = place(bh, T // STEPS, H, HK, K)
    decays, g_stride = place_of_decays(outputs, H, K, DECAY)
    chunk = bh * tl.cdiv(T, C) + n
    ks = block_k * BK + tl.arange(0, BK)
    rows = n * C + tl.arange(0, C)
    tokens = token_of(rows, T, Q_BEFORE, STEPS)
    states += chunk * K * V
    dstates += chunk * K * V
    part = block_k * tl.num_programs(1).to(tl.int64) * T
    if DECAY != "none":
        g += decays
    if DECAY == "scalar":
        dsums += block_k * tl.num_programs(1).to(tl.int64) * tl.cdiv(T, C) * 3 * C
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

    decay = whole_decay(sums, kept, chunk, ks, K, C, DECAY, DT)
    kept_n = tl.zeros([1, BK], tl.float32) if DECAY == "vector" else 0.0
    dq_n, dp_n, dkey, dk_n = tl.zeros([C, BK], tl.float32), tl.zeros([C, BK], tl.float32), tl.zeros([C, BK], tl.float32), tl.zeros([C, BK], tl.float32)
    da, da_t, dl, dl_t = tl.zeros([C, C], tl.float32), tl.zeros([C, C], tl.float32), tl.zeros([C, C], tl.float32), tl.zeros([C, C], tl.float32)
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
                dv_n = fine_dot(load_square_transposed(stored_scores(squares, chunk, 0, C, UPDATE), C), do_n, DT, later)
            else:
                dr, dv_n = solved_gradients(seen, do_n, later, beta_n, squares, inverses, chunk, C, UPDATE, DT)
                seen = (-dr if UPDATE == "delta" else dr).to(DT)
                if UPDATE == "delta":
                    dbeta_n += tl.sum(dr * v_n, axis=1)
                z = rounded(z, FINE_BACK, DT)
                dl, dl_t = fine_dot(seen, tl.trans(z), DT, dl), fine_dot(z, tl.trans(seen), DT, dl_t)
            store_rows(dv + gates * V, rows, T, H * V, vs, V, dv_n)
            da, da_t = fine_dot(do_n, tl.trans(z), DT, da), fine_dot(z, tl.trans(do_n), DT, da_t)
            if UPDATE == "low_rank":
                da_k, da_kt = dot(do_n, tl.trans(v_n), DT, da_k), dot(v_n, tl.trans(do_n), DT, da_kt)
                dl_k, dl_kt = dot(seen, tl.trans(v_n), DT, dl_k), dot(v_n, tl.trans(seen), DT, dl_kt)
        state_t, dstate_t = load_transposed(states, ks, K, V, vs, V), load_transposed(dstates, ks, K, V, vs, V)
        if DECAY != "none":
            kept_n += kept_gradient(tl.sum(state_t.to(tl.float32) * dstate_t, axis=0), decay, DECAY)
        through = state_products(do_n, v_n, z, seen, state_t, dstate_t, UPDATE, DT)
        dq_n, dkey = dq_n + through[0], dkey + through[2]
        if UPDATE != "add":
            dp_n += through[1]
        if UPDATE == "low_rank":
            dk_n += through[3]
    if JOINED:
        da, da_t = both_decayed(da, da_t, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, FINE_BACK, False, DT)
        dl, dl_t = both_decayed(dl, dl_t, g_n, 1.0, rows, DECAY, P_BEFORE, True, FINE, FINE and DECAY != "none", DT)
        da_k, da_kt = both_decayed(da_k, da_kt, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, False, False, DT)
        dl_k, dl_kt = both_decayed(dl_k, dl_kt, g_n, 1.0, rows, DECAY, P_BEFORE, True, False, False, DT)
    else:
        da, da_t = stored_both(dsquares, chunk, 0, C, UPDATE)
        da = rounded(da, FINE_BACK or DECAY == "vector", DT)
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
        q_n, k_n, key, p_n, u_n, da, da_t, dl, dl_t, da_k, da_kt, dl_k, dl_kt, beta_n, dbeta_n, g_n, dq_n, dp_n, dkey, dk_n, kept_n, scale,
        dq, dk, dg, dsums, dbeta, dp, db, du_n, gates, outputs, decays, g_stride, chunk, rows, ks, T, H, K,
        LEVELS, DECAY, UPDATE, ERASE, Q_BEFORE, P_BEFORE, STEPS, DT,
    )  # fmt: skip


@triton.jit
def value_gradients(
    k, v, sums, beta, writes, squares, inverses, dsquares, do, dstates, dwrites, dv, dbeta, k_end, T,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr, Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr,
    STEPS: tl.constexpr, FINE_BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Grid (N, B H), where writes depend on the state: what the gradient of the writes gives to the values, and to p's scores of key and of k.

    Leaves the gradient of what p reads where that of the writes was, and the values' part of that of beta beside those of blocks of keys.
    """
    n, bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    keys, gates = place(bh, T, H, HK, K)
    _, outputs = place(bh, T // STEPS, H, HK, K)
    chunk = bh * tl.cdiv(T, C) + n
    INSIDE: tl.constexpr = "none" if DECAY == "vector" else DECAY
    rows = n * C + tl.arange(0, C)
    tokens = token_of(rows, T, Q_BEFORE, STEPS)
    dstates += chunk * K * V
    plain, key_stride = k + keys, HK * K
    if DECAY == "vector" and UPDATE == "low_rank":
        plain, key_stride = k_end + gates * K, H * K
    g_n = scalar_decay(sums, chunk, C, DECAY, DT)
    dl, dl_k, dbeta_n, beta_n = tl.zeros([C, C], tl.float32), tl.zeros([C, C], tl.float32), tl.zeros([C], tl.float32), tl.zeros([C], tl.float32)
    if UPDATE == "delta":
        beta_n = tl.load(beta + gates + rows * H, mask=rows < T, other=0.0).to(tl.float32)
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        z = rounded(load_rows(writes + gates * V, rows, T, H * V, vs, V), FINE_BACK, DT)
        v_n = load_rows(v + gates * V, rows, T, H * V, vs, V).to(DT)
        do_n, later = v_n, None
        if UPDATE == "low_rank":
            do_n = load_rows(do + outputs * V, tokens, T // STEPS, H * V, vs, V)
            later = later_readings(plain, key_stride, dstates, g_n, rows, vs, T, K, V, BK, INSIDE, DT)
        dwrite = load_rows(dwrites + gates * V, rows, T, H * V, vs, V)
        dr, dv_n = solved_gradients(dwrite, do_n, later, beta_n, squares, inverses, chunk, C, UPDATE, DT)
        seen = (-dr if UPDATE == "delta" else dr).to(DT)
        store_rows(dwrites + gates * V, rows, T, H * V, vs, V, seen)
        dl = fine_dot(seen, tl.trans(z), DT, dl)
        if UPDATE == "delta":
            dbeta_n += tl.sum(dr * v_n, axis=1)
        else:
            dl_k = dot(seen, tl.trans(v_n), DT, dl_k)
        store_rows(dv + gates * V, rows, T, H * V, vs, V, dv_n)
    store_square(stored_gradients(dsquares, chunk, 1, C, UPDATE), C, decayed(dl, g_n, 1.0, rows, DECAY, P_BEFORE, True, False, DT))
    if UPDATE == "delta":
        tl.store(dbeta + tl.cdiv(K, BK) * tl.num_programs(1).to(tl.int64) * T + gates + rows * H, dbeta_n, mask=rows < T)
    else:
        store_square(stored_gradients(dsquares, chunk, 3, C, UPDATE), C, decayed(dl_k, g_n, 1.0, rows, DECAY, P_BEFORE, True, False, DT))


@triton.jit
def summed_gradients(
    dsums, dg, P, T, H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, C: tl.constexpr, AT_ONCE: tl.constexpr, DECAY: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Grid (N / AT_ONCE, B H), for a scalar decay: its gradient, from what P blocks of keys left."""
    bh, N = tl.program_id(1).to(tl.int64), tl.cdiv(T, C)
    _, outputs = place(bh, T // STEPS, H, HK, K)
    decays, g_stride = place_of_decays(outputs, H, K, DECAY)
    stride_p = tl.num_programs(1).to(tl.int64) * N * 3 * C
    decay_gradients(dsums, dg + decays, bh, tl.program_id(0), P, stride_p, N, T, g_stride, C, AT_ONCE, STEPS, Q_BEFORE or P_BEFORE)
