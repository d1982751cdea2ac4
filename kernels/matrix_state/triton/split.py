"""The split schedule, forward: `prepare_wy`, `pass_state`, `chunk_output`.

Work that needs no state is done for all chunks at once, and only the state itself is passed from chunk to
chunk. With neither a vector decay nor two keys `chunk_output`, which has q at hand, computes its scores;
then, unless writes depend on the state, there is nothing to prepare.

Solving ahead of the state takes its part of the writes out: z = U - W S with U = X beta v, W = X beta e^G p
(delta), or U = X A_ak v, W = -X e^G a. What is passed on and read has its vector decay by then, so that for
the state itself there is none: INSIDE is the decay that is left.
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.bonus import load_bonus
from linbench.kernels.matrix_state.triton.chunk import (
    advance_state,
    inverse_of_writes,
    place,
    place_in_grid,
    place_of_decays,
    read_state,
    stored_scores,
)
from linbench.kernels.matrix_state.triton.decay import (
    chunk_decay,
    decay_state,
    keys_from_start,
    keys_to_end,
    load_decay,
    row_decay,
    scalar_decay,
    sum_decays,
    values_from_start,
)
from linbench.kernels.matrix_state.triton.scores import inverse_dot, own_scores, scores, store_inverse
from linbench.kernels.matrix_state.triton.tiles import (
    dot,
    extended_dot,
    load_rows,
    load_square,
    load_transposed,
    rounded,
    store_rows,
    store_square,
    token_of,
)


@triton.jit
def query_scores(
    q, y, g, sums, scale, chunk, rows, T, stride, g_stride, K,
    C: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr, DECAY: tl.constexpr,
    Q_BEFORE: tl.constexpr, STEPS: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Return q's scores of y, times scale: [C, C].

    They are of one key at a time: with two in a loop, Triton 3.6 was seen to get float32 wrong.
    """
    a = tl.zeros([C, C], tl.float32)
    for block in range(0, tl.cdiv(K, BK)):
        ks = block * BK + tl.arange(0, BK)
        q_n = load_rows(q, token_of(rows, T, Q_BEFORE, STEPS), T // STEPS, stride, ks, K).to(DT)
        y_n = load_rows(y, rows, T, stride, ks, K).to(DT)
        g_n = load_decay(g, sums, chunk, rows, T, g_stride, ks, K, DECAY, False, STEPS, DT)
        part, _p, _qk, _pk = scores(
            q_n, q_n, y_n, y_n, g_n, scale, rows, C, LEVELS, DECAY, True, False, False, Q_BEFORE, Q_BEFORE, DT
        )
        a += part
    return a


@triton.jit
def decay_sums(
    g, sums, T, H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, C: tl.constexpr,
    AT_ONCE: tl.constexpr, DECAY: tl.constexpr, STEPS: tl.constexpr,
    DT: tl.constexpr,
):  # fmt: skip
    """Store the sums of a scalar decay. Grid (N / AT_ONCE of every B H)."""
    N = tl.cdiv(T, C)
    several, bh = place_in_grid(tl.cdiv(N, AT_ONCE))
    _, outputs = place(bh, T // STEPS, H, HK, K)
    decays, g_stride = place_of_decays(outputs, H, K, DECAY)
    sum_decays(g + decays, sums, bh, several, N, T, g_stride, C, AT_ONCE, STEPS, DT)


@triton.jit
def prepare_wy(
    q, k, v, g, sums, beta, p, b, u, writes, erasers, squares,
    inverses, q_start, key_end, k_end, kept, scale, T, group,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr,
    ERASE: tl.constexpr, Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr,
    STEPS: tl.constexpr, PREPARED: tl.constexpr, SAVE: tl.constexpr,
    EXTENDED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute all of a chunk that needs no state, for a vector decay or writes that depend on the state.

    Grid (N of every B H). Stores q's scores if they are to be PREPARED, and of a low-rank update p's of k (in
    `squares`). Of a vector decay: q since the chunk's start and keys up to its end [B, T, H, K], and what it
    keeps [B, H, N, K]. Of writes that depend on the state: the inverse (SAVE: only backward reads it), and U
    [B, T, H, V] (in `writes`) and W [B, T, H, K].
    """
    n, bh = place_in_grid(tl.cdiv(T, C))
    keys, gates = place(bh, T, H, HK, K)
    queries, outputs = place(bh, T // STEPS, H, HK, K)
    decays, g_stride = place_of_decays(outputs, H, K, DECAY)
    chunk = bh * tl.cdiv(T, C) + n
    rows = n * C + tl.arange(0, C)
    tokens = token_of(rows, T, Q_BEFORE, STEPS)
    if DECAY != "none":
        g += decays
    TOGETHER: tl.constexpr = UPDATE != "low_rank" or DT != tl.float32  # as for `query_scores`
    a_q, a_p, a_qk, a_pk = (
        tl.zeros([C, C], tl.float32),
        tl.zeros([C, C], tl.float32),
        tl.zeros([C, C], tl.float32),
        tl.zeros([C, C], tl.float32),
    )
    for block in range(0, tl.cdiv(K, BK)):
        ks = block * BK + tl.arange(0, BK)
        q_n = load_rows(q + queries, tokens, T // STEPS, HK * K, ks, K).to(DT)
        k_n = load_rows(k + keys, rows, T, HK * K, ks, K).to(DT)
        g_n = load_decay(g, sums, chunk, rows, T, g_stride, ks, K, DECAY, False, STEPS, DT)
        key, p_n = k_n, k_n
        if UPDATE == "low_rank":
            key = load_rows(b + keys, rows, T, HK * K, ks, K).to(DT)
        if ERASE:
            p_n = load_rows(p + keys, rows, T, HK * K, ks, K).to(DT)
        if DECAY == "vector":
            store_rows(
                q_start + outputs * K,
                tokens,
                T // STEPS,
                H * K,
                ks,
                K,
                keys_from_start(q_n, g_n, rows, DECAY, Q_BEFORE, False, DT),
            )
            store_rows(
                key_end + gates * K, rows, T, H * K, ks, K, keys_to_end(key, g_n, rows, DECAY, False, DT)
            )
            if UPDATE == "low_rank":
                store_rows(
                    k_end + gates * K, rows, T, H * K, ks, K, keys_to_end(k_n, g_n, rows, DECAY, False, DT)
                )
            # every step of a walk waits for it
            tl.store(kept + chunk * K + ks, row_decay(g_n, 0), mask=ks < K, eviction_policy="evict_last")
        of_q, of_p, of_qk, of_pk = scores(
            q_n, p_n, key, k_n, g_n, scale, rows, C, LEVELS, DECAY,
            PREPARED and TOGETHER, UPDATE != "add", UPDATE == "low_rank", Q_BEFORE, P_BEFORE, DT,
        )  # fmt: skip
        a_q, a_p, a_qk, a_pk = a_q + of_q, a_p + of_p, a_qk + of_qk, a_pk + of_pk
        if u is not None:
            a_q += scale * own_scores(q_n, k_n * load_bonus(u, bh, group, H, ks, K), rows)
    if not TOGETHER:
        a_q = query_scores(
            q + queries, b + keys, g, sums, scale, chunk, rows, T, HK * K,
            g_stride, K, C, LEVELS, BK, DECAY, Q_BEFORE, STEPS, DT,
        )  # fmt: skip
        a_qk = query_scores(
            q + queries, k + keys, g, sums, scale, chunk, rows, T, HK * K,
            g_stride, K, C, LEVELS, BK, DECAY, Q_BEFORE, STEPS, DT,
        )  # fmt: skip
    if UPDATE == "low_rank":
        store_square(stored_scores(squares, chunk, 1, C, UPDATE), C, a_qk)
        store_square(stored_scores(squares, chunk, 2, C, UPDATE), C, a_pk)
    if PREPARED:
        store_square(stored_scores(squares, chunk, 0, C, UPDATE), C, a_q)
    if UPDATE != "add":
        beta_n = tl.zeros([C], tl.float32)
        if UPDATE == "delta":
            beta_n = tl.load(beta + gates + rows * H, mask=rows < T, other=0.0).to(tl.float32)
        x = inverse_of_writes(a_p, beta_n, rows, LEVELS, UPDATE, EXTENDED, DT)
        if SAVE:
            store_inverse(inverses, chunk, x, C, DT)
        x = x * beta_n[None, :] if UPDATE == "delta" else -x  # values and keys of 16 bits stay as they are
        for block in range(0, tl.cdiv(K, BK)):
            ks = block * BK + tl.arange(0, BK)
            p_n = load_rows((p if ERASE else k) + keys, rows, T, HK * K, ks, K).to(DT)
            g_n = load_decay(g, sums, chunk, rows, T, g_stride, ks, K, DECAY, False, STEPS, DT)
            recall = values_from_start(
                keys_from_start(p_n, g_n, rows, DECAY, P_BEFORE, False, DT), g_n, 1.0, DECAY, P_BEFORE, DT
            )
            store_rows(erasers + gates * K, rows, T, H * K, ks, K, inverse_dot(x, recall.to(DT), DT))
        for block in range(0, tl.cdiv(V, BV)):
            vs = block * BV + tl.arange(0, BV)
            written = load_rows(v + gates * V, rows, T, H * V, vs, V).to(DT)
            if UPDATE == "low_rank":
                written = dot(-a_pk, written, DT).to(DT)
            store_rows(writes + gates * V, rows, T, H * V, vs, V, inverse_dot(x, written, DT))


@triton.jit
def pass_state(
    k, v, sums, b, first, last, states, writes, erasers, key_end, k_end, kept, T,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    DECAY: tl.constexpr, UPDATE: tl.constexpr, STATE: tl.constexpr,
    EXTENDED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Store the state at the start of every chunk. Grid (V / BV of every B H, K / BK).

    Where writes depend on the state, writes z where U was, too, and BK is all of K.
    """
    block, bh = place_in_grid(tl.cdiv(V, BV))
    vs = block * BV + tl.arange(0, BV)
    keys, gates = place(bh, T, H, HK, K)
    INSIDE: tl.constexpr = "none" if DECAY == "vector" else DECAY
    ks = tl.program_id(1) * BK + tl.arange(0, BK)
    N = tl.cdiv(T, C)
    key, plain, key_stride = (b if UPDATE == "low_rank" else k) + keys, k + keys, HK * K
    if DECAY == "vector":
        key, key_stride = key_end + gates * K, H * K
        if UPDATE == "low_rank":
            plain = k_end + gates * K
    state = tl.zeros([BK, BV], tl.float32)
    if STATE:
        state += load_rows(first + bh * K * V, ks, K, V, vs, V)
    if DECAY == "vector":  # loaded two chunks ahead: what multiplies a sum, Triton does not load ahead
        ahead = tl.join(
            chunk_decay(sums, kept, bh * N, ks, K, C, DECAY, DT),
            chunk_decay(sums, kept, bh * N + tl.minimum(1, N - 1), ks, K, C, DECAY, DT),
        )
    for n in range(0, N):
        rows = n * C + tl.arange(0, C)
        if DECAY == "vector":
            decay, later = tl.split(ahead)
            ahead = tl.join(
                later, chunk_decay(sums, kept, bh * N + tl.minimum(n + 2, N - 1), ks, K, C, DECAY, DT)
            )
        else:
            decay = chunk_decay(sums, kept, bh * N + n, ks, K, C, DECAY, DT)
        store_rows(states + (bh * N + n) * K * V, ks, K, V, vs, V, state)
        key_t = load_transposed(key, rows, T, key_stride, ks, K).to(DT)
        g_n = scalar_decay(sums, bh * N + n, C, DECAY, DT)
        v_n = key_t
        if UPDATE != "delta":
            v_n = load_rows(v + gates * V, rows, T, H * V, vs, V).to(DT)
        z = v_n
        if UPDATE != "add":
            w = load_rows(erasers + gates * K, rows, T, H * K, ks, K)
            z = rounded(
                load_rows(writes + gates * V, rows, T, H * V, vs, V) - dot(w, state, DT), EXTENDED, DT
            )
            store_rows(writes + gates * V, rows, T, H * V, vs, V, z)
        state = advance_state(
            decay_state(state, decay, DECAY), key_t, z, g_n, g_n, rows, INSIDE, EXTENDED, DT
        )
        if UPDATE == "low_rank":
            k_t = load_transposed(plain, rows, T, key_stride, ks, K).to(DT)
            state = advance_state(state, k_t, v_n, g_n, g_n, rows, INSIDE, False, DT)
    if last is not None:
        store_rows(last + bh * K * V, ks, K, V, vs, V, state)


@triton.jit
def chunk_output(
    q, k, v, sums, o, states, writes, squares, q_start, scale, T,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, LEVELS: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr,
    Q_BEFORE: tl.constexpr, STEPS: tl.constexpr, PREPARED: tl.constexpr,
    SAVE: tl.constexpr, EXTENDED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute the outputs. Grid (N of every B H)."""
    n, bh = place_in_grid(tl.cdiv(T, C))
    keys, gates = place(bh, T, H, HK, K)
    queries, outputs = place(bh, T // STEPS, H, HK, K)
    chunk = bh * tl.cdiv(T, C) + n
    rows = n * C + tl.arange(0, C)
    tokens = token_of(rows, T, Q_BEFORE, STEPS)
    INSIDE: tl.constexpr = "none" if DECAY == "vector" else DECAY
    states += chunk * K * V
    if PREPARED:
        a_q = load_square(stored_scores(squares, chunk, 0, C, UPDATE), C)
    else:
        a_q = query_scores(
            q + queries, k + keys, sums, sums, scale, chunk, rows,
            T, HK * K, 0, K, C, LEVELS, BK, DECAY, Q_BEFORE, STEPS, DT,
        )  # fmt: skip
        if SAVE:
            store_square(stored_scores(squares, chunk, 0, C, UPDATE), C, a_q)
    g_n = scalar_decay(sums, chunk, C, DECAY, DT)
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        o_n = tl.zeros([C, BV], tl.float32)
        for key_block in range(0, tl.cdiv(K, BK)):
            ks = key_block * BK + tl.arange(0, BK)
            if DECAY == "vector":
                q_n = load_rows(q_start + outputs * K, tokens, T // STEPS, H * K, ks, K)
            else:
                q_n = load_rows(q + queries, tokens, T // STEPS, HK * K, ks, K).to(DT)
            o_n += read_state(q_n, load_rows(states, ks, K, V, vs, V), g_n, scale, rows, INSIDE, Q_BEFORE, DT)
        o_n = extended_dot(
            rounded(a_q, EXTENDED, DT),
            load_rows((v if UPDATE == "add" else writes) + gates * V, rows, T, H * V, vs, V),
            DT,
            o_n,
        )
        if UPDATE == "low_rank":
            a_qk = load_square(stored_scores(squares, chunk, 1, C, UPDATE), C)
            o_n = dot(a_qk, load_rows(v + gates * V, rows, T, H * V, vs, V), DT, o_n)
        store_rows(o + outputs * V, tokens, T // STEPS, H * V, vs, V, o_n)
