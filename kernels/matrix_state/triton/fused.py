"""The fused schedule, with one launch each way.

One program per batch row and head goes through the chunks, with the state in registers.
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.bonus import load_bonus, place_of_parts
from linbench.kernels.matrix_state.triton.chunk import (
    add_query_to_dstate,
    advance_state,
    inverse_of_writes,
    kept_gradient,
    place,
    place_of_decays,
    read_state,
    solved_gradients,
    state_products,
    store_key_gradients,
    stored_scores,
    value_gradient_from_state,
)
from linbench.kernels.matrix_state.triton.decay import (
    chunk_decay,
    decay_gradients,
    decay_state,
    lay_out,
    load_decay,
    row_decay,
    sum_decays,
)
from linbench.kernels.matrix_state.triton.scores import (
    decayed,
    inverse_dot,
    own_scores,
    score_gradient,
    scores,
    store_inverse,
)
from linbench.kernels.matrix_state.triton.tiles import (
    dot,
    extended_dot,
    load_rows,
    load_square_transposed,
    load_transposed,
    rounded,
    store_rows,
    store_square,
    token_of,
)


@triton.jit
def first_chunk_rows(n, K: tl.constexpr, UPDATE: tl.constexpr, STATE: tl.constexpr):
    """Return how many rows of the state that chunk n starts with are kept.

    All of a sum's, or none if it starts with nothing. Other updates have no registers to spare for that.
    """
    if STATE or UPDATE != "add":
        rows = K
    else:
        rows = tl.where(n > 0, K, 0)
    return rows


@triton.jit
def forward(
    q, k, v, g, beta, p, b, u, first, o, last, sums, betas,
    states, writes, squares, inverses, scale, T, group,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, LEVELS: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr,
    ERASE: tl.constexpr, Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr,
    STEPS: tl.constexpr, STATE: tl.constexpr, ALONE: tl.constexpr,
    SAVE: tl.constexpr, EXTENDED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute o and the final state. Grid (B H).

    Tensors are the operator's; SAVE stores what `backward` needs. A chunk that is ALONE starts with nothing,
    and passes nothing on.
    """
    bh = tl.program_id(0).to(tl.int64)
    keys, gates = place(bh, T, H, HK, K)
    queries, outputs = place(bh, T // STEPS, H, HK, K)
    decays, g_stride = place_of_decays(outputs, H, K, DECAY)
    values = gates * V
    ks, vs = tl.arange(0, BK), tl.arange(0, BV)
    if DECAY != "none":
        g += decays
    N = tl.cdiv(T, C)
    if DECAY == "scalar":
        for block in range(0, tl.cdiv(N, AT_ONCE)):
            sum_decays(g, sums, bh, block, N, T, g_stride, C, AT_ONCE, STEPS, DT)
    if UPDATE == "delta":
        for block in range(0, tl.cdiv(N, AT_ONCE)):
            lay_out(beta + gates, betas, bh, block, N, T, H, C, AT_ONCE)
    if DECAY == "scalar" or UPDATE == "delta":
        tl.debug_barrier()  # other threads will read them
    state = tl.zeros([BK, BV], tl.float32)
    if STATE:
        state += load_rows(first + bh * K * V, ks, K, V, vs, V)
    for n in range(0, N):
        rows = n * C + tl.arange(0, C)
        tokens = token_of(rows, T, Q_BEFORE, STEPS)
        chunk = bh * N + n
        q_n = load_rows(q + queries, tokens, T // STEPS, HK * K, ks, K).to(DT)
        k_n = load_rows(k + keys, rows, T, HK * K, ks, K).to(DT)
        g_n = load_decay(g, sums, chunk, rows, T, g_stride, ks, K, DECAY, False, STEPS, DT)
        g_t = load_decay(g, sums, chunk, rows, T, g_stride, ks, K, DECAY, True, STEPS, DT)
        key, p_n, beta_n = k_n, k_n, tl.zeros([C], tl.float32)
        if UPDATE == "low_rank":
            key = load_rows(b + keys, rows, T, HK * K, ks, K).to(DT)
        if ERASE:
            p_n = load_rows(p + keys, rows, T, HK * K, ks, K).to(DT)
        if DECAY == "vector":
            k_t = load_transposed(k + keys, rows, T, HK * K, ks, K).to(DT)
            key_t = load_transposed((b if UPDATE == "low_rank" else k) + keys, rows, T, HK * K, ks, K).to(DT)
        else:
            k_t, key_t = tl.trans(k_n), tl.trans(key)
        if UPDATE == "delta":
            beta_n = tl.load(betas + chunk * C + tl.arange(0, C))

        a_q, a_p, a_qk, a_pk = scores(
            q_n, p_n, key, k_n, g_n, scale, rows, C, LEVELS, DECAY, True,
            UPDATE != "add", UPDATE == "low_rank", Q_BEFORE, P_BEFORE, DT,
        )  # fmt: skip
        if u is not None:
            a_q += scale * own_scores(q_n, k_n * load_bonus(u, bh, group, H, ks, K), rows)
        if UPDATE != "add":
            x = inverse_of_writes(a_p, beta_n, rows, LEVELS, UPDATE, EXTENDED, DT)
            if SAVE:
                store_inverse(inverses, chunk, x, C, DT)
        v_n = load_rows(v + values, rows, T, H * V, vs, V).to(DT)
        z = v_n
        if UPDATE != "add":
            r = read_state(p_n, state, g_n, 1.0, rows, DECAY, P_BEFORE, DT)
            if UPDATE == "delta":
                r = beta_n[:, None] * (v_n - r)
            else:
                r = dot(a_pk, v_n, DT, r)
            z = rounded(inverse_dot(x, rounded(r, EXTENDED, DT), DT), EXTENDED, DT)
            if SAVE:
                store_rows(writes + values, rows, T, H * V, vs, V, z)
        o_n = tl.zeros([C, BV], tl.float32)
        if not ALONE:
            o_n = read_state(q_n, state, g_n, scale, rows, DECAY, Q_BEFORE, DT)
        if SAVE:
            if squares is not None:
                store_square(stored_scores(squares, chunk, 0, C, UPDATE), C, a_q)
            if not ALONE:
                store_rows(states + chunk * K * V, ks, first_chunk_rows(n, K, UPDATE, STATE), V, vs, V, state)
        # from one copy for all its uses k could not be loaded ahead
        if UPDATE == "delta" and DECAY != "vector":
            key_t = load_transposed(k + keys, rows, T, HK * K, ks, K).to(DT)
        decay = (
            row_decay(g_t, 1) if DECAY == "vector" else chunk_decay(sums, None, chunk, ks, K, C, DECAY, DT)
        )
        state = advance_state(decay_state(state, decay, DECAY), key_t, z, g_n, g_t, rows, DECAY, EXTENDED, DT)
        if UPDATE == "low_rank":
            state = advance_state(state, k_t, v_n, g_n, g_t, rows, DECAY, False, DT)
        # the chain's last product, as Triton lays all of it out by that one: by the state, both warps would
        # compute every other alike
        o_n = extended_dot(rounded(a_q, EXTENDED, DT), z, DT, o_n)
        if UPDATE == "low_rank":
            o_n = dot(a_qk, v_n, DT, o_n)
            if SAVE:
                store_square(stored_scores(squares, chunk, 1, C, UPDATE), C, a_qk)
                store_square(stored_scores(squares, chunk, 2, C, UPDATE), C, a_pk)
        store_rows(o + outputs * V, tokens, T // STEPS, H * V, vs, V, o_n)
    if last is not None:
        store_rows(last + bh * K * V, ks, K, V, vs, V, state)


@triton.jit
def backward(
    q, k, v, g, beta, p, b, u, sums, betas, states, writes, squares, inverses, do,
    dlast, dq, dk, dv, dg, dsums, dbeta, dp, db, du, dfirst, scale, T, group,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, LEVELS: tl.constexpr, AT_ONCE: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr,
    ERASE: tl.constexpr, Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr,
    STEPS: tl.constexpr, STATE: tl.constexpr, DLAST: tl.constexpr,
    ALONE: tl.constexpr, EXTENDED: tl.constexpr, EXTENDED_BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute gradients. Grid (B H). dq, dk, dp and db come per value head: [B, T, H, K]."""
    bh = tl.program_id(0).to(tl.int64)
    keys, gates = place(bh, T, H, HK, K)
    queries, outputs = place(bh, T // STEPS, H, HK, K)
    decays, g_stride = place_of_decays(outputs, H, K, DECAY)
    values = gates * V
    ks, vs = tl.arange(0, BK), tl.arange(0, BV)
    if DECAY != "none":
        g += decays
    N = tl.cdiv(T, C)
    dstate = tl.zeros([BK, BV], tl.float32)
    if DLAST:
        dstate += load_rows(dlast + bh * K * V, ks, K, V, vs, V)
    for m in range(0, N):
        n = N - 1 - m
        rows = n * C + tl.arange(0, C)
        tokens = token_of(rows, T, Q_BEFORE, STEPS)
        chunk = bh * N + n
        # what is loaded ahead stands where it is first used, so that it takes no registers before, and what
        # is not stands here
        decay = chunk_decay(sums, None, chunk, ks, K, C, DECAY, DT)
        v_n, beta_n = load_rows(v + values, rows, T, H * V, vs, V).to(DT), tl.zeros([C], tl.float32)
        if UPDATE == "delta":
            beta_n = tl.load(betas + chunk * C + tl.arange(0, C))
        k_n = load_rows(k + keys, rows, T, HK * K, ks, K).to(DT)
        do_n = load_rows(do + outputs * V, tokens, T // STEPS, H * V, vs, V).to(DT)
        g_n = load_decay(g, sums, chunk, rows, T, g_stride, ks, K, DECAY, False, STEPS, DT)
        g_t = load_decay(g, sums, chunk, rows, T, g_stride, ks, K, DECAY, True, STEPS, DT)
        if DECAY == "vector":
            decay = row_decay(g_t, 1)
        key, p_n, z = k_n, k_n, v_n
        if UPDATE == "low_rank":
            key = load_rows(b + keys, rows, T, HK * K, ks, K).to(DT)
        if ERASE:
            p_n = load_rows(p + keys, rows, T, HK * K, ks, K).to(DT)

        if squares is None:
            q_n = load_rows(q + queries, tokens, T // STEPS, HK * K, ks, K).to(DT)
            a_t = decayed(
                dot(key, tl.trans(q_n), DT), g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, True, DT
            ).to(DT)
        else:
            a_t = load_square_transposed(stored_scores(squares, chunk, 0, C, UPDATE), C)
        if ALONE:
            dz = extended_dot(a_t, do_n, DT)
        else:
            dz = extended_dot(a_t, do_n, DT, value_gradient_from_state(key, dstate, g_n, rows, DECAY, DT))
        dr, dv_n = dz, dz
        if UPDATE != "add":
            z = load_rows(writes + values, rows, T, H * V, vs, V)
            later = (
                value_gradient_from_state(k_n, dstate, g_n, rows, DECAY, DT) if UPDATE == "low_rank" else None
            )
            dr, dv_n = solved_gradients(
                rounded(dz, EXTENDED_BACK, DT), do_n, later, beta_n, squares, inverses, chunk, C, UPDATE, DT
            )
        # before dv is stored: what is left `between` tokens is then computed once, for a_t and for it
        da_t = score_gradient(do_n, z, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, True, False, DT)
        store_rows(dv + values, rows, T, H * V, vs, V, dv_n)

        kept = 0.0
        seen = (-dr if UPDATE == "delta" else dr).to(DT)
        dbeta_n = beta_n
        if UPDATE == "delta":
            # one order of float32's sums whatever the sizes
            dbeta_n = dr * v_n if BV == BK and DT != tl.float32 else tl.sum(dr * v_n, axis=1)
        if ALONE:
            dq_n = tl.zeros([C, BK], tl.float32)
            dp_n, dkey, dk_n = dq_n, dq_n, dq_n
        else:
            state_t = load_transposed(
                states + chunk * K * V, ks, first_chunk_rows(n, K, UPDATE, STATE), V, vs, V
            )
            if DECAY != "none":
                kept = kept_gradient(tl.sum(state_t * tl.trans(dstate), axis=0), decay, DECAY)
            dq_n, dp_n, dkey, dk_n = state_products(
                do_n, v_n, z, seen, state_t, tl.trans(dstate.to(DT)), UPDATE, DT
            )
        da = score_gradient(do_n, z, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, False, EXTENDED_BACK, DT)
        dl, dl_t, da_k, da_kt, dl_k, dl_kt = da, da_t, da, da_t, da, da_t
        if UPDATE != "add":
            dl = score_gradient(seen, z, g_n, 1.0, rows, DECAY, P_BEFORE, True, False, EXTENDED, DT)
            # a decay gets the difference of what dl and dl_t give: only alike do they cancel within a pair
            dl_t = score_gradient(
                seen, z, g_n, 1.0, rows, DECAY, P_BEFORE, True, True, EXTENDED and DECAY == "scalar", DT
            )
        if UPDATE == "low_rank":
            da_k = score_gradient(do_n, v_n, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, False, False, DT)
            da_kt = score_gradient(do_n, v_n, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, True, False, DT)
            dl_k = score_gradient(seen, v_n, g_n, 1.0, rows, DECAY, P_BEFORE, True, False, False, DT)
            dl_kt = score_gradient(seen, v_n, g_n, 1.0, rows, DECAY, P_BEFORE, True, True, False, DT)
        if squares is not None:
            q_n = load_rows(q + queries, tokens, T // STEPS, HK * K, ks, K).to(DT)
        if DECAY == "vector":
            q_t = load_transposed(q + queries, tokens, T // STEPS, HK * K, ks, K).to(DT)
            p_t = load_transposed((p if ERASE else k) + keys, rows, T, HK * K, ks, K).to(DT)
        else:
            q_t, p_t = tl.trans(q_n), tl.trans(p_n)
        u_n, du_n = u, du
        if u is not None:
            u_n, du_n = load_bonus(u, bh, group, H, ks, K), du + place_of_parts(bh, n, N, H, K)
        store_key_gradients(
            q_n, k_n, key, p_n, u_n, da, da_t, dl, dl_t, da_k, da_kt, dl_k, dl_kt,
            beta_n, dbeta_n, g_n, dq_n, dp_n, dkey, dk_n, kept, scale,
            dq, dk, dg, dsums, dbeta, dp, db, du_n, gates, outputs,
            decays, g_stride, chunk, rows, ks, T, H, K,
            LEVELS, DECAY, UPDATE, ERASE, Q_BEFORE, P_BEFORE, STEPS, DT,
        )  # fmt: skip
        if not ALONE:
            dstate = add_query_to_dstate(
                decay_state(dstate, decay, DECAY), q_t,
                do_n, g_n, g_t, scale, rows, DECAY, Q_BEFORE, False, DT,
            )  # fmt: skip
        if UPDATE == "delta":
            dstate = add_query_to_dstate(
                dstate, p_t, dv_n, g_n, g_t, -1.0, rows, DECAY, P_BEFORE, EXTENDED_BACK, DT
            )
        elif UPDATE == "low_rank":
            dstate = add_query_to_dstate(dstate, p_t, dr, g_n, g_t, 1.0, rows, DECAY, P_BEFORE, False, DT)
    if DECAY == "scalar":
        tl.debug_barrier()
        for block in range(0, tl.cdiv(N, AT_ONCE)):
            decay_gradients(
                g, dsums, dg + decays, bh, block, 1, 0, N, T,
                g_stride, C, AT_ONCE, STEPS, Q_BEFORE or P_BEFORE,
            )  # fmt: skip
    if STATE:
        store_rows(dfirst + bh * K * V, ks, K, V, vs, V, dstate)
