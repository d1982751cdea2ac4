"""What happens to one chunk, in the terms of `linbench.kernels.matrix_state.chunkwise`: the same for both schedules.

Readers are q and, where what is written depends on the state, p (the erase key of the delta rule, a of a low-rank update). Writes z go
in under `key`: k, or b of a low-rank update, which also writes v under k. The inverse X is that of I + beta A_pk or of I - A_ab:

    delta       z = X beta (v - e^G p S)
    low rank    z = X (A_ak v + e^G a S)
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.blocks import (
    dot,
    from_start,
    from_start_transposed,
    score_gradients,
    store_rows,
    sum_along,
    to_end,
    to_end_transposed,
    unit_triangular_inverse,
    whole,
)


@triton.jit
def place(bh, n, T, H, HK, K, V, C: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr):
    """Where chunk n of recurrence bh begins: offsets of q and k, of gates, of decays with their stride, and of the chunk's squares."""
    batch, head = bh // H, bh % H
    keys = (batch * T * HK + head // (H // HK)) * K
    gates = batch * T * H + head
    S: tl.constexpr = 1 if UPDATE == "add" else 2 if UPDATE == "delta" else 4
    return keys, gates, gates * K if DECAY == "vector" else gates, H * K if DECAY == "vector" else H, (bh * tl.cdiv(T, C) + n) * S * C * C


@triton.jit
def inverse_of_writes(a_p, beta, C: tl.constexpr, LEVELS: tl.constexpr, UPDATE: tl.constexpr):
    """X [C, C], from the scores of p and key."""
    return unit_triangular_inverse(beta[:, None] * a_p if UPDATE == "delta" else -a_p, C, LEVELS)


@triton.jit
def next_state(state, k_t, key_t, v, z, g_t, C: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr, DT: tl.constexpr):
    """The state [K, V] after the chunk; keys [K, C]."""
    state = whole(state, g_t, DECAY) + dot(to_end_transposed(key_t, g_t, C, DECAY, DT), z, DT)
    if UPDATE == "low_rank":
        state += dot(to_end_transposed(k_t, g_t, C, DECAY, DT), v, DT)
    return state


@triton.jit
def previous_dstate(
    dstate, q_t, p_t, do, dv, dr, g_t, scale, C: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Gradient of the state at the chunk's start from that at its end; q and p [K, C]."""
    dstate = whole(dstate, g_t, DECAY) + scale * dot(from_start_transposed(q_t, g_t, C, DECAY, Q_BEFORE, DT), do, DT)
    if UPDATE == "delta":
        dstate -= dot(from_start_transposed(p_t, g_t, C, DECAY, P_BEFORE, DT), dv, DT)
    elif UPDATE == "low_rank":
        dstate += dot(from_start_transposed(p_t, g_t, C, DECAY, P_BEFORE, DT), dr, DT)
    return dstate


@triton.jit
def value_products(do, v, z, dr, state_t, dstate_t, scale, UPDATE: tl.constexpr, DT: tl.constexpr):
    """What the gradients of keys need of one block of values, to be summed over all blocks.

    do, v, z, dr: [C, BV]; the states [BV, K]. Returns, [C, C] with their transposes: gradients of q's scores of key (1, 2) and of k (3, 4),
    of p's of key (5, 6) and of k (7, 8); [C, K], without decay: dq, dp, dkey, dk through the states; [C]: dr . v. What the delta rule
    recalls is subtracted, so there p's are those of beta p.
    """
    da, da_t = scale * dot(do, tl.trans(z), DT), scale * dot(z, tl.trans(do), DT)
    dq, dkey = scale * dot(do, state_t, DT), dot(z, dstate_t, DT)
    dl, dl_t, dp, drv, da2, da2_t, dl2, dl2_t, dk = da, da_t, dq, tl.sum(dq, axis=1), da, da_t, da, da_t, dkey
    if UPDATE != "add":
        drv = tl.sum(dr * v, axis=1)
        recalled = (-dr if UPDATE == "delta" else dr).to(DT)
        dl, dl_t = dot(recalled, tl.trans(z), DT), dot(z, tl.trans(recalled), DT)
        dp = dot(recalled, state_t, DT)
    if UPDATE == "low_rank":
        da2, da2_t = scale * dot(do, tl.trans(v), DT), scale * dot(v, tl.trans(do), DT)
        dl2, dl2_t = dot(recalled, tl.trans(v), DT), dot(v, tl.trans(recalled), DT)
        dk = dot(v, dstate_t, DT)
    return da, da_t, da2, da2_t, dl, dl_t, dl2, dl2_t, dq, dp, dkey, dk, drv


@triton.jit
def key_gradients(
    q, k, key, p, beta, g, da, da_t, da2, da2_t, dl, dl_t, dl2, dl2_t, dq, dp, dkey, dk, drv, kept,
    C: tl.constexpr, LEVELS: tl.constexpr, DECAY: tl.constexpr, UPDATE: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Gradients of q, k, key, p, beta and the log decay from the sums of `value_products` and `kept_gradient`.

    A log decay acts between a write and a reading. So its gradient sums reader . gradient over the readers from it on (after it, if
    they read before the decay) less the same of the chunk's writes, and writer . gradient over the writes before it that reach the next
    chunk: differences only of what belongs to the same pair.
    """
    dq = from_start(dq, g, C, DECAY, Q_BEFORE, DT)
    dkey = to_end(dkey, g, C, DECAY, DT)
    handed_on = key * dkey
    reader = beta[:, None] * p if UPDATE == "delta" else p
    dx, dx_p, written = score_gradients(q, reader, key, da, da_t, dl, dl_t, g, C, LEVELS, DECAY, UPDATE != "add", Q_BEFORE, P_BEFORE, DT)
    dq += dx
    dkey += written
    written = key * written
    dbeta = drv
    if UPDATE != "add":
        dp = from_start(dp, g, C, DECAY, P_BEFORE, DT) + dx_p
    if UPDATE == "delta":
        dbeta += tl.sum(p * dp, axis=1)
        dp = beta[:, None] * dp
    if UPDATE == "low_rank":
        dk = to_end(dk, g, C, DECAY, DT)
        handed_on += k * dk
        dx, dx_p, dy = score_gradients(q, p, k, da2, da2_t, dl2, dl2_t, g, C, LEVELS, DECAY, True, Q_BEFORE, P_BEFORE, DT)
        dq += dx
        dp += dx_p
        dk += dy
        written += k * dy
    dg = kept
    if DECAY != "none":
        if Q_BEFORE:
            dg += sum_along(q * dq, C, DECAY, "after", DT) - sum_along(written, C, DECAY, "from", DT)
        else:
            dg += sum_along(q * dq - written, C, DECAY, "from", DT)
        if UPDATE != "add":
            dg += sum_along(p * dp, C, DECAY, "after" if P_BEFORE else "from", DT)
        dg += sum_along(handed_on, C, DECAY, "before", DT)
    return dq, dk, dkey, dp, dbeta, dg


@triton.jit
def kept_gradient(state_t, dstate_t, g_t, DECAY: tl.constexpr):
    """<what is left of the state at the end of the chunk, its gradient>: [1, K] by row for a vector decay, else [1]. States [V, K]."""
    kept = tl.sum(state_t.to(tl.float32) * dstate_t.to(tl.float32), axis=0)[None, :]
    if DECAY == "vector":
        kept = kept * tl.exp2(tl.sum(g_t, axis=1))[None, :]
    elif DECAY == "scalar":
        kept = tl.sum(kept, axis=1) * tl.exp2(tl.sum(g_t, axis=0))
    return kept


@triton.jit
def store_gradients(
    dq_n, dk_n, dkey, dp_n, dbeta_n, dg_n, dq, dk, dg, dbeta, dp, db, gates, decays, g_stride, rows, ks, T, H, K,
    DECAY: tl.constexpr, UPDATE: tl.constexpr, ERASE: tl.constexpr,
):  # fmt: skip
    """What `key_gradients` found, to where the operator wants it: p's joins k's where k is also the erase key."""
    store_rows(dq + gates * K, rows, T, H * K, ks, K, dq_n)
    if UPDATE == "low_rank":
        store_rows(db + gates * K, rows, T, H * K, ks, K, dkey)
        dkey = dk_n
    if ERASE:
        store_rows(dp + gates * K, rows, T, H * K, ks, K, dp_n)
    elif UPDATE == "delta":
        dkey += dp_n
    store_rows(dk + gates * K, rows, T, H * K, ks, K, dkey)
    if UPDATE == "delta":
        tl.store(dbeta + gates + rows * H, dbeta_n.to(dbeta.dtype.element_ty), mask=rows < T)
    if DECAY == "vector":
        store_rows(dg + decays, rows, T, g_stride, ks, K, dg_n)
    elif DECAY == "scalar":
        tl.store(dg + decays + rows * g_stride, dg_n.to(dg.dtype.element_ty), mask=rows < T)
