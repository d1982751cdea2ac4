"""What tokens of a chunk are to each other: scores, their gradients, and the triangular inverse. A chunk has C = 2^LEVELS tokens, t [C]."""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.decay import across, between, to_middle
from linbench.kernels.matrix_state.triton.tiles import dot, precise_dot


@triton.jit
def scores(
    q, p, y, g, t, C: tl.constexpr, LEVELS: tl.constexpr, DECAY: tl.constexpr, Q: tl.constexpr, P: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """[C, C] twice: q_i . y_j and p_i . y_j with what has decayed from j to i, zero where i does not see j. Q and P say which are wanted.

    q sees its own token unless it reads BEFORE it, p never does.
    """
    a_q, a_p = tl.zeros([C, C], tl.float32), tl.zeros([C, C], tl.float32)
    if DECAY == "vector":
        if Q and not Q_BEFORE:
            a_q += tl.where(t[:, None] == t[None, :], tl.sum(q.to(tl.float32) * y.to(tl.float32), axis=1)[:, None], 0.0)
        for level in range(0, LEVELS):
            left = to_middle(g, level, t, Q_BEFORE if Q else P_BEFORE, DT)
            written = tl.trans((y * left).to(DT))
            if Q:
                a_q += tl.where(across(level, t, False), dot(q * left, written, DT), 0.0)
            if P:
                if Q and Q_BEFORE != P_BEFORE:
                    left = to_middle(g, level, t, P_BEFORE, DT)
                a_p += tl.where(across(level, t, False), dot(p * left, written, DT), 0.0)
    else:
        if Q:
            a_q = decayed(dot(q, tl.trans(y), DT), g, t, DECAY, Q_BEFORE, Q_BEFORE, False, DT)
        if P:
            a_p = decayed(dot(p, tl.trans(y), DT), g, t, DECAY, P_BEFORE, True, False, DT)
    return a_q, a_p


@triton.jit
def score_gradient(x, z, factor, g, t, DECAY: tl.constexpr, BEFORE: tl.constexpr, STRICT: tl.constexpr, TRANSPOSED: tl.constexpr, DT: tl.constexpr):
    """[C, C] (TRANSPOSED: its transpose): gradient of the products under `scores`, but for a vector decay, which has its part in every level.

    x: [C, V], gradient of what was read; z: [C, V], what was written.
    """
    if TRANSPOSED:
        a = factor * dot(z, tl.trans(x), DT)
    else:
        a = factor * dot(x, tl.trans(z), DT)
    return decayed(a, g, t, DECAY, BEFORE, STRICT, TRANSPOSED, DT)


@triton.jit
def decayed(a, g, t, DECAY: tl.constexpr, BEFORE: tl.constexpr, STRICT: tl.constexpr, TRANSPOSED: tl.constexpr, DT: tl.constexpr):
    """a [C, C] (TRANSPOSED: its transpose) with what a scalar decay leaves `between` tokens, and zero where i does not see j."""
    if DECAY != "vector":
        a = a * between(g, t, DECAY, BEFORE, STRICT, TRANSPOSED, DT)
    return a


@triton.jit
def key_gradients(
    q, p, y, da, da_t, dl, dl_t, dq, dp, dy, g, t, LEVELS: tl.constexpr, DECAY: tl.constexpr, P: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """dq, dp and dy [C, K] with what comes through their `scores`: da, dl and their transposes, each a `score_gradient`. P: whether there is a p."""
    if DECAY == "vector":
        if not Q_BEFORE:
            own = tl.sum(tl.where(t[:, None] == t[None, :], da, 0.0), axis=1)[:, None]
            dq += own * y
            dy += own * q
        for level in range(0, LEVELS):
            left = to_middle(g, level, t, Q_BEFORE, DT)
            written = (y * left).to(DT)
            dq += left * dot(tl.where(across(level, t, False), da, 0.0), written, DT)
            dy += left * dot(tl.where(across(level, t, True), da_t, 0.0), q * left, DT)
            if P:
                reads = left
                if Q_BEFORE != P_BEFORE:
                    reads = to_middle(g, level, t, P_BEFORE, DT)
                dp += reads * dot(tl.where(across(level, t, False), dl, 0.0), written, DT)
                dy += left * dot(tl.where(across(level, t, True), dl_t, 0.0), p * reads, DT)
    else:
        dq, dy = dot(da, y, DT, dq), dot(da_t, q, DT, dy)
        if P:
            dp, dy = dot(dl, y, DT, dp), dot(dl_t, p, DT, dy)
    return dq, dp, dy


@triton.jit
def unit_triangular_inverse(lower, t, LEVELS: tl.constexpr, DT: tl.constexpr):
    """(I + lower)^-1 for a strictly lower triangular [C, C], by blockwise substitution.

    With X the inverse of the diagonal blocks of s tokens and M what `lower` holds between the two of each 2s, that of 2s is X - X M X.
    Every factor is a true inverse, so near-parallel keys with beta near two lose nothing, as they do by repeated squaring.
    """
    apart = t[:, None] ^ t[None, :]
    x = tl.where(apart == 0, 1.0, 0.0) - tl.where(apart == 1, lower, 0.0)
    for level in range(1, LEVELS):
        x -= precise_dot(x, precise_dot(tl.where((apart >> level) == 1, lower, 0.0), x, DT), DT)
    return x
