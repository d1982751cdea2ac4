"""Steps of one chunk, in the terms of `linbench.kernels.matrix_state.chunkwise`: the same for both schedules.

Readers are q and, if writes depend on the state, p (the erase key of the delta rule, a of a low-rank update).
Writes z go in under `key`: k, or b of a low-rank update, which also writes v under k. The inverse X is that
of I + beta A_pk or of I - A_ab:

    delta       z = X beta (v - e^G p S)
    low rank    z = X (A_ak v + e^G a S)
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.decay import (
    keys_from_start,
    keys_to_end,
    store_decay_parts,
    sum_along,
    values_from_start,
    values_to_end,
    without_floor,
)
from linbench.kernels.matrix_state.triton.scores import (
    key_gradients,
    own_gradients,
    transposed_inverse_dot,
    unit_triangular_inverse,
)
from linbench.kernels.matrix_state.triton.tiles import (
    dot,
    extended_dot,
    load_rows,
    load_square,
    load_square_transposed,
    rounded,
    store_rows,
    token_of,
)


@triton.jit
def place_in_grid(count):
    """Return this program's number among the `count` programs of a recurrence, and the recurrence.

    They all lie on the grid's first axis: there are only 65,535 on the others.
    """
    program = tl.program_id(0)
    return program % count, (program // count).to(tl.int64)


@triton.jit
def rows_of_grid(count):
    """Return B H, from a grid with `count` programs for each recurrence."""
    return (tl.num_programs(0) // count).to(tl.int64)


@triton.jit
def place(bh, T, H, HK, K):
    """Return where recurrence bh begins: offsets of keys, and of gates."""
    batch, head = bh // H, bh % H
    keys = (batch * T * HK + head // (H // HK)) * K
    return keys, batch * T * H + head


@triton.jit
def place_of_decays(gates, H, K, DECAY: tl.constexpr):
    """Return where a recurrence's log decays begin, and their stride."""
    return gates * K if DECAY == "vector" else gates, H * K if DECAY == "vector" else H


@triton.jit
def stored_scores(squares, chunk, which, C: tl.constexpr, UPDATE: tl.constexpr):
    """Return where the scores of a chunk are stored; those of q are scaled.

    which: 0 of q and key; of a low-rank update also 1 of q and k, 2 of p and k.
    """
    COUNT: tl.constexpr = 3 if UPDATE == "low_rank" else 1
    return squares + (chunk * COUNT + which) * C * C


@triton.jit
def stored_gradients(dsquares, chunk, which, C: tl.constexpr, UPDATE: tl.constexpr):
    """Return where the gradients of a chunk's scores are stored.

    which: 0 of q and key, 1 of p and key, 2 of q and k, 3 of p and k.
    """
    COUNT: tl.constexpr = 4 if UPDATE == "low_rank" else 2 if UPDATE == "delta" else 1
    return dsquares + (chunk * COUNT + which) * C * C


@triton.jit
def stored_both(dsquares, chunk, which, C: tl.constexpr, UPDATE: tl.constexpr):
    """Load the `stored_gradients`, and their transpose."""
    at = stored_gradients(dsquares, chunk, which, C, UPDATE)
    return load_square(at, C), load_square_transposed(at, C)


@triton.jit
def inverse_of_writes(
    a_p, beta, t, LEVELS: tl.constexpr, UPDATE: tl.constexpr, EXTENDED: tl.constexpr, DT: tl.constexpr
):
    """Return X [C, C], from the scores of p and key."""
    return unit_triangular_inverse(
        beta[:, None] * a_p if UPDATE == "delta" else -a_p, t, LEVELS, EXTENDED, DT
    )


@triton.jit
def read_state(x, state, g, factor, t, DECAY: tl.constexpr, BEFORE: tl.constexpr, DT: tl.constexpr):
    """Return [C, V], factor times what x_i [C, K] reads of the state that the chunk starts with."""
    return values_from_start(
        dot(keys_from_start(x, g, t, DECAY, BEFORE, False, DT), state, DT), g, factor, DECAY, BEFORE, DT
    )


@triton.jit
def advance_state(state, x_t, y, g, g_t, t, DECAY: tl.constexpr, EXTENDED: tl.constexpr, DT: tl.constexpr):
    """Add writes y [C, V] under keys x [K, C] to the state [K, V] that the chunk ends with."""
    return extended_dot(
        keys_to_end(x_t, g_t, t, DECAY, True, DT).to(DT),
        rounded(values_to_end(y, g, DECAY, DT), EXTENDED, DT),
        DT,
        state,
    )


@triton.jit
def value_gradient_from_state(x, dstate, g, t, DECAY: tl.constexpr, DT: tl.constexpr):
    """Return [C, V], the gradient of writes under x [C, K], from that of the state at the chunk's end."""
    return values_to_end(dot(keys_to_end(x, g, t, DECAY, False, DT), dstate, DT), g, DECAY, DT)


@triton.jit
def later_readings(
    key, stride, dstate, g, rows, vs, T, K, V, BK: tl.constexpr, DECAY: tl.constexpr, DT: tl.constexpr
):
    """Return [C, BV], the gradient that later chunks give to values written under `key`.

    It comes from the gradient of the state at the chunk's end.
    """
    dv = tl.zeros([rows.shape[0], vs.shape[0]], tl.float32)
    for block in range(0, tl.cdiv(K, BK)):
        ks = block * BK + tl.arange(0, BK)
        dv += value_gradient_from_state(
            load_rows(key, rows, T, stride, ks, K).to(DT),
            load_rows(dstate, ks, K, V, vs, V),
            g,
            rows,
            DECAY,
            DT,
        )
    return dv


@triton.jit
def add_query_to_dstate(
    dstate,
    x_t,
    y,
    g,
    g_t,
    factor,
    t,
    DECAY: tl.constexpr,
    BEFORE: tl.constexpr,
    EXTENDED: tl.constexpr,
    DT: tl.constexpr,
):
    """Add the part of readers x [K, C] to the gradient of the state [K, V] at the chunk's start.

    y [C, V] is the gradient of factor times their readings.
    """
    y = rounded(values_from_start(y, g, factor, DECAY, BEFORE, DT), EXTENDED, DT)
    return extended_dot(keys_from_start(x_t, g_t, t, DECAY, BEFORE, True, DT).to(DT), y, DT, dstate)


@triton.jit
def solved_gradients(
    dz, do, later, beta, squares, inverses, chunk, C: tl.constexpr, UPDATE: tl.constexpr, DT: tl.constexpr
):
    """Return the gradients of what writes are solved from, and of values, from dz [C, V].

    For writes that depend on the state. Where values are also written as they are, their part from `later`
    chunks is included.
    """
    dr = transposed_inverse_dot(inverses, chunk, dz, C, DT)
    if UPDATE == "delta":
        dv = beta[:, None] * dr
    else:
        dv = extended_dot(
            load_square_transposed(stored_scores(squares, chunk, 1, C, UPDATE), C), do, DT, later
        )
        dv = extended_dot(
            load_square_transposed(stored_scores(squares, chunk, 2, C, UPDATE), C), dr.to(DT), DT, dv
        )
    return dr, dv


@triton.jit
def kept_gradient(product, decay, DECAY: tl.constexpr):
    """Return the gradient of the log of a chunk's `chunk_decay`, from state . gradient by row [K].

    It is [1, K] for a vector decay, else one number.
    """
    if DECAY == "vector":
        kept = (product * decay)[None, :]
    else:
        kept = tl.sum(product, axis=0) * tl.exp2(decay)
    return kept


@triton.jit
def state_products(do, v, z, seen, state_t, dstate_t, UPDATE: tl.constexpr, DT: tl.constexpr):
    """Return gradients of q, p, key and k [C, K] through the states [BV, K], without scale and decay.

    They are of one block of values, and sums over blocks.
    """
    dq, dkey = dot(do, state_t, DT), dot(z, dstate_t, DT)
    dp, dk = dq, dkey
    if UPDATE != "add":
        dp = dot(seen, state_t, DT)
    if UPDATE == "low_rank":
        dk = dot(v, dstate_t, DT)
    return dq, dp, dkey, dk


@triton.jit
def _add(a, b, a_more, b_more):
    return a + a_more, b + b_more


@triton.jit
def sums_by_token(a, b):
    """Sum two matrices [C, K] over K to [C], in one exchange between warps."""
    return tl.reduce((a, b), 1, _add)


@triton.jit
def _add_four(a, b, c, d, a_more, b_more, c_more, d_more):
    return a + a_more, b + b_more, c + c_more, d + d_more


@triton.jit
def four_sums_by_token(a, b, c, d):
    """Sum four matrices, as `sums_by_token`."""
    return tl.reduce((a, b, c, d), 1, _add_four)


@triton.jit
def store_key_gradients(
    q, k, key, p, u, da, da_t, dl, dl_t, da_k, da_kt, dl_k, dl_kt,
    beta, dbeta_n, g, dq_n, dp_n, dkey, dk_n, kept, scale,
    dq, dk, dg, dsums, dbeta, dp, db, du, gates, outputs, decays, g_stride, chunk, rows, ks, T, H, K,
    LEVELS: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr, ERASE: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, STEPS: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Store gradients of q, k, key, p, beta and the log decay.

    They come through the states (`state_products`) and through the chunk's scores.

    da and dl: gradients of q's and p's scores of key (the delta rule subtracts what p reads, and dl is that
    of beta p); da_k and dl_k of k, if this is another key; each with its transpose. dbeta_n: [C], its part
    from the values, or numbers in the shape of keys whose sum over the last axis it is; kept: as from
    `kept_gradient`; u: [1, K], or None if a token's own write counts as others do, or not at all. Where k is
    also the erase key, p's gradient goes to k.

    A log decay acts between a write and a reading. So its gradient sums reader . gradient over the readers
    from it on (after it, if they read before the decay) less the same of the chunk's writes, and writer .
    gradient over the writes before it that reach the next chunk: differences only of what belongs to the same
    pair.
    """
    base = gates * K
    reader = (beta[:, None] * p if UPDATE == "delta" else p).to(DT)
    dq_n = values_from_start(
        keys_from_start(dq_n, g, rows, DECAY, Q_BEFORE, False, DT), g, scale, DECAY, Q_BEFORE, DT
    )
    dp_n = values_from_start(
        keys_from_start(dp_n, g, rows, DECAY, P_BEFORE, False, DT), g, 1.0, DECAY, P_BEFORE, DT
    )
    dkey = values_to_end(keys_to_end(dkey, g, rows, DECAY, False, DT), g, DECAY, DT)
    passed_on = key * dkey
    dq_n, dp_n, own, own_k = key_gradients(
        q, reader, key, k, da, da_t, dl, dl_t, da_k, da_kt, dl_k, dl_kt, dq_n, dp_n, g, rows,
        LEVELS, DECAY, UPDATE != "add", UPDATE == "low_rank", Q_BEFORE, P_BEFORE, DT,
    )  # fmt: skip
    written = key * own
    dkey += own
    if UPDATE == "low_rank":
        store_rows(db + base, rows, T, H * K, ks, K, dkey)
        dkey = values_to_end(keys_to_end(dk_n, g, rows, DECAY, False, DT), g, DECAY, DT)
        passed_on += k * dkey
        written += k * own_k
        dkey += own_k
    dq_all = dq_n
    if u is not None:  # nothing decays between a token and its own write
        own_n = own_gradients(da, rows)
        dq_all += own_n * u * k
        dkey += own_n * u * q
        tl.store(du + ks, tl.sum(own_n * q * k, axis=0), mask=ks < K)
    store_rows(dq + outputs * K, token_of(rows, T, Q_BEFORE, STEPS), T // STEPS, H * K, ks, K, dq_all)
    erased = reader * dp_n  # with the very reader that writes met, so that what belongs to one pair cancels
    TOGETHER: tl.constexpr = UPDATE == "delta" and len(dbeta_n.shape) == 2
    recall = p * dp_n
    if UPDATE == "delta":
        if not TOGETHER:
            dbeta_n += tl.sum(recall, axis=1)
        elif DECAY != "scalar":
            dbeta_n, of_recall = sums_by_token(dbeta_n, recall)
            dbeta_n += of_recall
        dp_n = beta[:, None] * dp_n
    if UPDATE != "add":
        if ERASE:
            store_rows(dp + base, rows, T, H * K, ks, K, dp_n)
        else:
            dkey += dp_n
    store_rows(dk + base, rows, T, H * K, ks, K, dkey)

    if DECAY != "none":
        from_on, after = -written, tl.zeros(written.shape, tl.float32)
        if Q_BEFORE:
            after += q * dq_n
        else:
            from_on += q * dq_n
        if UPDATE != "add":
            if P_BEFORE:
                after += erased
            else:
                from_on += erased
        if DECAY == "vector":
            dg_n = kept + sum_along(passed_on, rows, "before", DT)
            if Q_BEFORE or P_BEFORE:  # both in one product
                dg_n += from_on + sum_along(from_on + after, rows, "after", DT)
            else:
                dg_n += sum_along(from_on, rows, "from", DT)
            dg_n = without_floor(dg_n, g)
            store_rows(dg + decays, token_of(rows, T, True, STEPS), T // STEPS, g_stride, ks, K, dg_n)
        else:
            if TOGETHER:
                dbeta_n, of_recall, later, earlier = four_sums_by_token(dbeta_n, recall, from_on, passed_on)
                dbeta_n += of_recall
            else:
                later, earlier = sums_by_token(from_on, passed_on)
            store_decay_parts(dsums, chunk, kept, later, earlier, after, Q_BEFORE or P_BEFORE, rows.shape[0])
    if UPDATE == "delta":
        tl.store(dbeta + gates + rows * H, dbeta_n.to(dbeta.dtype.element_ty), mask=rows < T)
