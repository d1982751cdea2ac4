"""What tokens of a chunk are to each other: scores, their gradients, and the triangular inverse. A chunk has C = 2^LEVELS tokens."""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.decay import across, between, sees, to_middle
from linbench.kernels.matrix_state.triton.tiles import dot, precise_dot


@triton.jit
def scores(
    q, p, y, g, C: tl.constexpr, LEVELS: tl.constexpr, DECAY: tl.constexpr, Q: tl.constexpr, P: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """[C, C] twice: q_i . y_j and p_i . y_j with what has decayed from j to i, zero where i does not see j. Q and P say which are wanted.

    q sees its own token unless it reads BEFORE it, p never does.
    """
    a_q, a_p = tl.zeros([C, C], tl.float32), tl.zeros([C, C], tl.float32)
    if DECAY == "vector":
        if Q and not Q_BEFORE:
            i = tl.arange(0, C)
            a_q += tl.where(i[:, None] == i[None, :], tl.sum(q.to(tl.float32) * y.to(tl.float32), axis=1)[:, None], 0.0)
        for level in range(0, LEVELS):
            left = to_middle(g, level, C, Q_BEFORE if Q else P_BEFORE, DT)
            written = tl.trans((y * left).to(DT))
            if Q:
                a_q += tl.where(across(level, C, False), dot(q * left, written, DT), 0.0)
            if P:
                if Q and Q_BEFORE != P_BEFORE:
                    left = to_middle(g, level, C, P_BEFORE, DT)
                a_p += tl.where(across(level, C, False), dot(p * left, written, DT), 0.0)
    else:
        if Q:
            a_q = dot(q, tl.trans(y), DT) * between(g, C, DECAY, Q_BEFORE, Q_BEFORE, False, DT)
        if P:
            a_p = dot(p, tl.trans(y), DT) * between(g, C, DECAY, P_BEFORE, True, False, DT)
    return a_q, a_p


@triton.jit
def score_gradients(
    q, p, y, do, seen, z, dq, dp, dy, scale, g, C: tl.constexpr, LEVELS: tl.constexpr, DECAY: tl.constexpr, P: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """dq, dp and dy [C, K] with what comes through their `scores`, whose gradients are scale do z^T for q's and seen z^T for p's.

    do, seen: [C, V], gradients of what was read. z: [C, V], what was written under y. P: whether there is a p.
    """
    if DECAY == "vector":
        da, da_t = scale * dot(do, tl.trans(z), DT), scale * dot(z, tl.trans(do), DT)
        dl, dl_t = da, da_t
        if P:
            dl, dl_t = dot(seen, tl.trans(z), DT), dot(z, tl.trans(seen), DT)
        if not Q_BEFORE:
            i = tl.arange(0, C)
            own = tl.sum(tl.where(i[:, None] == i[None, :], da, 0.0), axis=1)[:, None]
            dq += own * y
            dy += own * q
        for level in range(0, LEVELS):
            left = to_middle(g, level, C, Q_BEFORE, DT)
            written = (y * left).to(DT)
            dq += left * dot(tl.where(across(level, C, False), da, 0.0), written, DT)
            dy += left * dot(tl.where(across(level, C, True), da_t, 0.0), q * left, DT)
            if P:
                reads = left
                if Q_BEFORE != P_BEFORE:
                    reads = to_middle(g, level, C, P_BEFORE, DT)
                dp += reads * dot(tl.where(across(level, C, False), dl, 0.0), written, DT)
                dy += left * dot(tl.where(across(level, C, True), dl_t, 0.0), p * reads, DT)
    else:
        left = between(g, C, DECAY, Q_BEFORE, Q_BEFORE, False, DT)
        dq = dot(scale * left * dot(do, tl.trans(z), DT), y, DT, dq)
        if P:
            left = tl.where(sees(C, True, False), left, 0.0) if Q_BEFORE == P_BEFORE else between(g, C, DECAY, P_BEFORE, True, False, DT)
            dp = dot(left * dot(seen, tl.trans(z), DT), y, DT, dp)
        left = between(g, C, DECAY, Q_BEFORE, Q_BEFORE, True, DT)
        dy = dot(scale * left * dot(z, tl.trans(do), DT), q, DT, dy)
        if P:
            left = tl.where(sees(C, True, True), left, 0.0) if Q_BEFORE == P_BEFORE else between(g, C, DECAY, P_BEFORE, True, True, DT)
            dy = dot(left * dot(z, tl.trans(seen), DT), p, DT, dy)
    return dq, dp, dy


@triton.jit
def unit_triangular_inverse(lower, C: tl.constexpr, LEVELS: tl.constexpr, DT: tl.constexpr):
    """(I + lower)^-1 for a strictly lower triangular [C, C], by blockwise substitution.

    With X the inverse of the diagonal blocks of s tokens and M what `lower` holds between the two of each 2s, that of 2s is X - X M X.
    Every factor is a true inverse, so near-parallel keys with beta near two lose nothing, as they do by repeated squaring.
    """
    i = tl.arange(0, C)
    x = tl.where(i[:, None] == i[None, :], 1.0, 0.0) - tl.where(across(0, C, False), lower, 0.0)
    for level in range(1, LEVELS):
        x -= precise_dot(x, precise_dot(tl.where(across(level, C, False), lower, 0.0), x, DT), DT)
    return x
