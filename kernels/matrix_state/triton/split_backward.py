"""The split schedule, backward, up to `split_gradients`.

It is `write_gradients`, `pass_state_backward` and `value_gradients`; where writes do not depend on the state,
nor then the gradient of the state on theirs, `pass_state_backward` and `write_gradients`. JOINED,
`pass_state_backward` is alone, and `split_gradients` does the rest for all keys of a chunk.
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.chunk import (
    add_query_to_dstate,
    later_readings,
    place,
    place_in_grid,
    rows_of_grid,
    solved_gradients,
    stored_gradients,
    stored_scores,
    value_gradient_from_state,
)
from linbench.kernels.matrix_state.triton.decay import chunk_decay, decay_state, scalar_decay
from linbench.kernels.matrix_state.triton.scores import decayed
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
def write_gradients(
    k, v, sums, do, writes, squares, dsquares, dstates, dwrites, key_end, scale, T,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr,
    UPDATE: tl.constexpr, Q_BEFORE: tl.constexpr, STEPS: tl.constexpr,
    EXTENDED_BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute what the outputs of a chunk give to its writes z, and to q's scores of key and of k.

    Grid (N of every B H). Where writes do not depend on the state, it comes after `pass_state_backward` and
    adds what outputs of later chunks give: all of dv.
    """
    n, bh = place_in_grid(tl.cdiv(T, C))
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
        dz = extended_dot(a_t, do_n, DT)
        if UPDATE == "add":
            dz += later_readings(
                key, key_stride, dstates + chunk * K * V, g_n, rows, vs, T, K, V, BK, INSIDE, DT
            )
        store_rows(dwrites + gates * V, rows, T, H * V, vs, V, dz)
        z = rounded(
            load_rows((v if UPDATE == "add" else writes) + gates * V, rows, T, H * V, vs, V),
            EXTENDED_BACK,
            DT,
        )
        da = extended_dot(do_n, tl.trans(z), DT, da)
        if UPDATE == "low_rank":
            da_k = dot(do_n, tl.trans(load_rows(v + gates * V, rows, T, H * V, vs, V).to(DT)), DT, da_k)
    store_square(
        stored_gradients(dsquares, chunk, 0, C, UPDATE),
        C,
        decayed(da, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, False, DT),
    )
    if UPDATE == "low_rank":
        store_square(
            stored_gradients(dsquares, chunk, 2, C, UPDATE),
            C,
            decayed(da_k, g_n, scale, rows, DECAY, Q_BEFORE, Q_BEFORE, False, DT),
        )


@triton.jit
def pass_state_backward(
    q, k, sums, b, do, dlast, dfirst, squares, dstates, dwrites, erasers, q_start, key_end, kept, scale, T,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    DECAY: tl.constexpr, UPDATE: tl.constexpr, Q_BEFORE: tl.constexpr,
    STEPS: tl.constexpr, STATE: tl.constexpr, DLAST: tl.constexpr,
    JOINED: tl.constexpr, EXTENDED_BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Store the gradient of the state at the end of every chunk. Grid (V / BV of every B H, K / BK).

    Where writes depend on the state, it stores all of the gradient of the writes z, too, and BK is all of K.
    """
    block, bh = place_in_grid(tl.cdiv(V, BV))
    vs = block * BV + tl.arange(0, BV)
    keys, gates = place(bh, T, H, HK, K)
    queries, outputs = place(bh, T // STEPS, H, HK, K)
    INSIDE: tl.constexpr = "none" if DECAY == "vector" else DECAY
    ks = tl.program_id(1) * BK + tl.arange(0, BK)
    N = tl.cdiv(T, C)
    q, key, key_stride = q + queries, (b if UPDATE == "low_rank" else k) + keys, HK * K
    if DECAY == "vector":
        q, key, key_stride = q_start + outputs * K, key_end + gates * K, H * K
    dstate = tl.zeros([BK, BV], tl.float32)
    if DLAST:
        dstate += load_rows(dlast + bh * K * V, ks, K, V, vs, V)
    if DECAY == "vector":  # loaded two chunks ahead: what multiplies a sum, Triton does not load ahead
        last = bh * N + N - 1
        ahead = tl.join(
            chunk_decay(sums, kept, last, ks, K, C, DECAY, DT),
            chunk_decay(sums, kept, last - tl.minimum(1, N - 1), ks, K, C, DECAY, DT),
        )
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
            ahead = tl.join(
                later, chunk_decay(sums, kept, bh * N + tl.maximum(n - 2, 0), ks, K, C, DECAY, DT)
            )
        else:
            decay = chunk_decay(sums, kept, bh * N + n, ks, K, C, DECAY, DT)
        if UPDATE != "add":
            if JOINED:
                a_t, next_a_t = (
                    next_a_t,
                    load_square_transposed(
                        stored_scores(squares, bh * N + tl.maximum(n - 1, 0), 0, C, UPDATE), C
                    ),
                )
            else:
                dwrite, next_dwrite = (
                    next_dwrite,
                    load_rows(
                        dwrites + gates * V, tl.maximum(n - 1, 0) * C + tl.arange(0, C), T, H * V, vs, V
                    ),
                )
        store_rows(dstates + (bh * N + n) * K * V, ks, K, V, vs, V, dstate)
        q_t = load_transposed(q, tokens, T // STEPS, key_stride, ks, K).to(DT)
        do_n = load_rows(do + outputs * V, tokens, T // STEPS, H * V, vs, V)
        g_n = scalar_decay(sums, bh * N + n, C, DECAY, DT)
        if UPDATE != "add":
            key_n = load_rows(key, rows, T, key_stride, ks, K).to(DT)
            if JOINED:
                dwrite = extended_dot(a_t, do_n.to(DT), DT)
            dz = dwrite + value_gradient_from_state(key_n, dstate, g_n, rows, INSIDE, DT)
            store_rows(dwrites + gates * V, rows, T, H * V, vs, V, dz)
        dstate = add_query_to_dstate(
            decay_state(dstate, decay, DECAY), q_t, do_n, g_n, g_n, scale, rows, INSIDE, Q_BEFORE, False, DT
        )
        if UPDATE != "add":
            dstate -= extended_dot(
                load_transposed(erasers + gates * K, rows, T, H * K, ks, K),
                rounded(dz, EXTENDED_BACK, DT),
                DT,
            )
    if STATE:
        store_rows(dfirst + bh * K * V, ks, K, V, vs, V, dstate)


@triton.jit
def value_gradients(
    k, v, sums, beta, writes, squares, inverses, dsquares, do, dstates, dwrites, dv, dbeta, k_end, T,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DECAY: tl.constexpr,
    UPDATE: tl.constexpr, Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr,
    STEPS: tl.constexpr, EXTENDED_BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute what the gradient of the writes gives to the values, and to p's scores of key and of k.

    Grid (N of every B H), where writes depend on the state. Stores the gradient of what p reads where that of
    the writes was, and the values' part of that of beta beside those of blocks of keys.
    """
    n, bh = place_in_grid(tl.cdiv(T, C))
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
    dl, dl_k, dbeta_n, beta_n = (
        tl.zeros([C, C], tl.float32),
        tl.zeros([C, C], tl.float32),
        tl.zeros([C], tl.float32),
        tl.zeros([C], tl.float32),
    )
    if UPDATE == "delta":
        beta_n = tl.load(beta + gates + rows * H, mask=rows < T, other=0.0).to(tl.float32)
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        z = rounded(load_rows(writes + gates * V, rows, T, H * V, vs, V), EXTENDED_BACK, DT)
        v_n = load_rows(v + gates * V, rows, T, H * V, vs, V).to(DT)
        do_n, later = v_n, None
        if UPDATE == "low_rank":
            do_n = load_rows(do + outputs * V, tokens, T // STEPS, H * V, vs, V)
            later = later_readings(plain, key_stride, dstates, g_n, rows, vs, T, K, V, BK, INSIDE, DT)
        dwrite = load_rows(dwrites + gates * V, rows, T, H * V, vs, V)
        dr, dv_n = solved_gradients(dwrite, do_n, later, beta_n, squares, inverses, chunk, C, UPDATE, DT)
        seen = (-dr if UPDATE == "delta" else dr).to(DT)
        store_rows(dwrites + gates * V, rows, T, H * V, vs, V, seen)
        dl = extended_dot(seen, tl.trans(z), DT, dl)
        if UPDATE == "delta":
            dbeta_n += tl.sum(dr * v_n, axis=1)
        else:
            dl_k = dot(seen, tl.trans(v_n), DT, dl_k)
        store_rows(dv + gates * V, rows, T, H * V, vs, V, dv_n)
    store_square(
        stored_gradients(dsquares, chunk, 1, C, UPDATE),
        C,
        decayed(dl, g_n, 1.0, rows, DECAY, P_BEFORE, True, False, DT),
    )
    if UPDATE == "delta":
        tl.store(
            dbeta + tl.cdiv(K, BK) * rows_of_grid(tl.cdiv(T, C)) * T + gates + rows * H,
            dbeta_n,
            mask=rows < T,
        )
    else:
        store_square(
            stored_gradients(dsquares, chunk, 3, C, UPDATE),
            C,
            decayed(dl_k, g_n, 1.0, rows, DECAY, P_BEFORE, True, False, DT),
        )
