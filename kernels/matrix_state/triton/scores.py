"""Scores of the tokens of a chunk, their gradients, and the triangular inverse.

A chunk has C = 2^LEVELS tokens, t [C].
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.decay import between, later_half, pairs, to_middle
from linbench.kernels.matrix_state.triton.tiles import (
    dot,
    exact_dot,
    extended_dot,
    halved,
    load_square_transposed,
    product_onto,
    rounded,
    store_square,
    wide_dot,
)


@triton.jit
def exact_scores(p, y_t, DT: tl.constexpr):
    """Return p @ y_t, of which the inverse is made; 16-bit factors have exact products anyway."""
    if DT == tl.float32:
        a = exact_dot(p, y_t, False, DT)
    else:
        a = product_onto(p, y_t, None)
    return a


@triton.jit
def own_scores(q, key, t):
    """Return q_i . key_i on the diagonal of [C, C]."""
    return tl.where(
        t[:, None] == t[None, :], tl.sum(q.to(tl.float32) * key.to(tl.float32), axis=1)[:, None], 0.0
    )


@triton.jit
def own_gradients(da, t):
    """Return the gradients [C, 1] of `own_scores`, from those of all."""
    return tl.sum(tl.where(t[:, None] == t[None, :], da.to(tl.float32), 0.0), axis=1)[:, None]


@triton.jit
def scores(
    q, p, key, k, g, scale, t, C: tl.constexpr, LEVELS: tl.constexpr,
    DECAY: tl.constexpr, Q: tl.constexpr, P: tl.constexpr, TWO: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Return four matrices [C, C]: scale q_i . key_j, p_i . key_j, scale q_i . k_j and p_i . k_j.

    Each has what has decayed from j to i, and is zero where i does not see j. Q and P say which readers are
    wanted, TWO whether k is another key. q sees its own token unless it reads BEFORE it, p never does.
    """
    a_q, a_p, a_qk, a_pk = (
        tl.zeros([C, C], tl.float32),
        tl.zeros([C, C], tl.float32),
        tl.zeros([C, C], tl.float32),
        tl.zeros([C, C], tl.float32),
    )
    if DECAY == "vector":
        if Q and not Q_BEFORE:
            a_q += own_scores(q, key, t)
            if TWO:
                a_qk += own_scores(q, k, t)
        for level in tl.static_range(0, LEVELS):
            here = pairs(level, t) & later_half(level, t)
            left = to_middle(g, level, t, Q_BEFORE if Q else P_BEFORE, DT)
            written = tl.trans(key * left)
            written_k = written
            if TWO:
                written_k = tl.trans(k * left)
            if Q:
                reader = q * left
                a_q = tl.where(here, wide_dot(reader, written, DT), a_q)
                if TWO:
                    a_qk = tl.where(here, wide_dot(reader, written_k, DT), a_qk)
            if P:
                if Q and Q_BEFORE != P_BEFORE:
                    left = to_middle(g, level, t, P_BEFORE, DT)
                reader = p * left
                a_p = tl.where(here, exact_scores(reader, written, DT), a_p)
                if TWO:
                    a_pk = tl.where(here, wide_dot(reader, written_k, DT), a_pk)
        a_q, a_qk = scale * a_q, scale * a_qk
    else:
        if Q:
            a_q = decayed(dot(q, tl.trans(key), DT), g, scale, t, DECAY, Q_BEFORE, Q_BEFORE, False, DT)
            if TWO:
                a_qk = decayed(dot(q, tl.trans(k), DT), g, scale, t, DECAY, Q_BEFORE, Q_BEFORE, False, DT)
        if P:
            a_p = decayed(exact_scores(p, tl.trans(key), DT), g, 1.0, t, DECAY, P_BEFORE, True, False, DT)
            if TWO:
                a_pk = decayed(dot(p, tl.trans(k), DT), g, 1.0, t, DECAY, P_BEFORE, True, False, DT)
    return a_q, a_p, a_qk, a_pk


@triton.jit
def score_gradient(
    x, z, g, factor, t, DECAY: tl.constexpr, BEFORE: tl.constexpr, STRICT: tl.constexpr,
    TRANSPOSED: tl.constexpr, EXTENDED: tl.constexpr, DT: tl.constexpr
):  # fmt: skip
    """Return factor times the gradient [C, C] of the products under `scores` (TRANSPOSED: its transpose).

    For a vector decay it is without the decay, which has its part in every level.

    x: [C, V], gradient of what was read; z: [C, V], what was written, which counts to 16 bits if it is not
    transposed and has them.
    """
    if TRANSPOSED:
        a = dot(z, tl.trans(x), DT)
    else:
        a = extended_dot(x, tl.trans(z), DT)
    a = decayed(a, g, factor, t, DECAY, BEFORE, STRICT, TRANSPOSED, DT)
    if DECAY != "vector":
        a = rounded(a, EXTENDED, DT)
    return a


@triton.jit
def decayed(
    a,
    g,
    factor,
    t,
    DECAY: tl.constexpr,
    BEFORE: tl.constexpr,
    STRICT: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    DT: tl.constexpr,
):
    """Return factor a [C, C] (TRANSPOSED: its transpose) with what is left `between` tokens.

    For a vector decay that is left out. It is zero where i does not see j.
    """
    if DECAY == "vector":
        a = factor * a
    else:
        a = a * between(g, factor, t, DECAY, BEFORE, STRICT, TRANSPOSED, DT)
    return a


@triton.jit
def both_decayed(
    a, a_t, g, factor, t, DECAY: tl.constexpr, BEFORE: tl.constexpr,
    STRICT: tl.constexpr, EXTENDED: tl.constexpr, EXTENDED_T: tl.constexpr, DT: tl.constexpr
):  # fmt: skip
    """Return a [C, C] and its transpose, each `decayed` and, but for a vector decay, `rounded`."""
    a, a_t = (
        decayed(a, g, factor, t, DECAY, BEFORE, STRICT, False, DT),
        decayed(a_t, g, factor, t, DECAY, BEFORE, STRICT, True, DT),
    )
    return rounded(a, EXTENDED or DECAY == "vector", DT), rounded(a_t, EXTENDED_T or DECAY == "vector", DT)


@triton.jit
def with_transposed(a, b_t, t):
    """Return [C, C]: below the diagonal a [C, C], above it b_t [C, C], the transpose of a or of another."""
    return tl.where(t[:, None] > t[None, :], a, b_t)


@triton.jit
def met(reader, written, left, level, t):
    """Return the factors [C, K] by which tokens meet those of the other half of a level.

    Of the later half what reads, of the earlier what is written. left: what is left `to_middle`.
    """
    return tl.where(later_half(level, t), left * reader, left * written)


@triton.jit
def with_pairs(of_reader, of_written, more, left, level, t):
    """Add `more` [C, K] from the pairs of one level to the gradients [C, K] of readers and of keys."""
    later, more = later_half(level, t), left * more
    return tl.where(later, of_reader + more, of_reader), tl.where(later, of_written, of_written + more)


@triton.jit
def from_pairs(da, factor, level, t, DT: tl.constexpr, onto=None):
    """Return what the pairs of one level give [C, K] to a `met` factor.

    da [C, C] are gradients of their scores, those of later tokens below the diagonal.
    """
    return wide_dot(tl.where(pairs(level, t), da, 0.0), factor, DT, onto)


@triton.jit
def key_gradients(
    q, p, key, k, da, da_t, dl, dl_t, da_k, da_kt, dl_k, dl_kt, dq, dp, g, t,
    LEVELS: tl.constexpr, DECAY: tl.constexpr, P: tl.constexpr, TWO: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Return dq and dp [C, K] with their parts through `scores`, and those of key and k.

    Each da, dl is a `score_gradient`, each _t its transpose.
    """
    dkey, dk = tl.zeros(dq.shape, tl.float32), tl.zeros(dq.shape, tl.float32)
    if DECAY == "vector":
        if not Q_BEFORE:
            own = own_gradients(da, t)
            dq += own * key
            dkey += own * q
            if TWO:
                own = own_gradients(da_k, t)
                dq += own * k
                dk += own * q
        da = with_transposed(da, da_t, t)
        # q and key fill one factor, p and k the other: what gives to both p and key, or to q and k, is of two
        # scores
        if TWO:
            dl, da_k, dl_k = (
                with_transposed(dl, da_kt, t),
                with_transposed(da_k, dl_t, t),
                with_transposed(dl_k, dl_kt, t),
            )
        else:
            dl = with_transposed(dl, dl_t, t)
        for level in range(0, LEVELS):
            left = to_middle(g, level, t, Q_BEFORE, DT)
            first = met(q, key, left, level, t)
            more, left_p = from_pairs(da, first, level, t, DT), left
            if Q_BEFORE != P_BEFORE:
                left_p = to_middle(g, level, t, P_BEFORE, DT)
            if TWO:
                second = met(p, k, left_p, level, t)
                more = from_pairs(da_k, second, level, t, DT, more)
                dp, dk = with_pairs(
                    dp,
                    dk,
                    from_pairs(dl, first, level, t, DT, from_pairs(dl_k, second, level, t, DT)),
                    left_p,
                    level,
                    t,
                )
            dq, dkey = with_pairs(dq, dkey, more, left, level, t)
            if P and not TWO:
                dp, dkey = with_pairs(
                    dp, dkey, from_pairs(dl, met(p, key, left_p, level, t), level, t, DT), left_p, level, t
                )
    else:
        dq, dkey = extended_dot(da, key, DT, dq), dot(da_t, q, DT, dkey)
        if P:
            dp, dkey = extended_dot(dl, key, DT, dp), extended_dot(dl_t, p, DT, dkey)
        if TWO:
            dq, dk = dot(da_k, k, DT, dq), dot(da_kt, q, DT, dk)
            dp, dk = dot(dl_k, k, DT, dp), dot(dl_kt, p, DT, dk)
    return dq, dp, dkey, dk


@triton.jit
def unit_triangular_inverse(lower, t, LEVELS: tl.constexpr, EXTENDED: tl.constexpr, DT: tl.constexpr):
    """Return (I + lower)^-1 for a strictly lower triangular [C, C], by blockwise substitution.

    Up to 16 tokens that happens in the diagonal blocks alone. Every factor is a true inverse, so
    near-parallel keys with beta near two lose nothing, as they do by repeated squaring.
    """
    i, blocks = tl.arange(0, 16), diagonal_blocks(lower)
    apart = i[:, None] ^ i[None, :]
    x = tl.where(apart == 0, 1.0, 0.0) - tl.where(apart == 1, blocks, 0.0)
    x = block_diagonal(substituted(x, blocks, apart, 1, 4, EXTENDED, DT))
    return substituted(x, lower, t[:, None] ^ t[None, :], 4, LEVELS, EXTENDED, DT)


@triton.jit
def substituted(
    x, lower, apart, FIRST: tl.constexpr, END: tl.constexpr, EXTENDED: tl.constexpr, DT: tl.constexpr
):
    """Take x [.., S, S] from the inverse of diagonal blocks of 2^FIRST tokens of I + lower to that of 2^END.

    With X the inverse of the blocks of s tokens and M the entries of `lower` between the two of each 2s, that
    of 2s is X - X M X. The left product comes first: its result stays in its warp to be a left factor, and M
    can be read before X is known.
    """
    for level in tl.static_range(FIRST, END):
        x -= exact_dot(
            exact_dot(x, tl.where((apart >> level) == 1, lower, 0.0), EXTENDED, DT), x, EXTENDED, DT
        )
    return x


@triton.jit
def diagonal_blocks(a):
    """Return the blocks [C / 16, 16, 16] of a [C, C].

    Tensor cores are given a warp for every block, which waits for no other.
    """
    N: tl.constexpr = a.shape[0] // 16
    n = tl.arange(0, N)[:, None, None, None]
    return tl.sum(
        tl.where(n == tl.arange(0, N)[None, None, :, None], tl.reshape(a, [N, 16, N, 16]), 0.0), axis=2
    )


@triton.jit
def block_diagonal(blocks):
    """Return [C, C] with `diagonal_blocks` [C / 16, 16, 16], and zeros."""
    N: tl.constexpr = blocks.shape[0]
    n = tl.arange(0, N)[:, None, None, None]
    return tl.reshape(
        tl.where(n == tl.arange(0, N)[None, None, :, None], blocks[:, :, None, :], 0.0), [N * 16, N * 16]
    )


@triton.jit
def inverse_dot(x, b, DT: tl.constexpr):
    """Return x @ b for an inverse x [C, C] in float32, to 16 bits beside 16-bit inputs.

    Rounding it further would be amplified when keys are near-parallel.
    """
    if DT == tl.float32:
        product = exact_dot(x, b.to(DT), False, DT)
    else:
        product = extended_dot(x, b, DT)
    return product


@triton.jit
def store_inverse(inverses, chunk, x, C: tl.constexpr, DT: tl.constexpr):
    """Store number `chunk` of inverses: [1, C, C] in float32, or [2, C, C] of 16 bits that add up to one."""
    if DT == tl.float32:
        store_square(inverses + chunk * C * C, C, x)
    else:
        high, low = halved(x)
        store_square(inverses + chunk * 2 * C * C, C, high)
        store_square(inverses + (chunk * 2 + 1) * C * C, C, low)


@triton.jit
def transposed_inverse_dot(inverses, chunk, b, C: tl.constexpr, DT: tl.constexpr):
    """Return `inverse_dot` with the transpose of what `store_inverse` stored."""
    if DT == tl.float32:
        product = exact_dot(load_square_transposed(inverses + chunk * C * C, C), b.to(DT), False, DT)
    else:
        low = load_square_transposed(inverses + (chunk * 2 + 1) * C * C, C)
        product = extended_dot(
            load_square_transposed(inverses + chunk * 2 * C * C, C), b, DT, dot(low, b, DT)
        )
    return product
