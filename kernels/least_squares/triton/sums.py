"""Sums over tokens: memories at the borders of chunks, gradients by them, and gradients of what was written.

A memory S [K, W] is the sum of b k w^T, decayed: the Gram matrix with w = k, the cross matrix with w = v. A
token t reads S^T x_t, and dread_t is the gradient by what it reads. dS is that by a memory. With c the log
decays summed since a chunk began, up to `total` at its end, and sums over the chunk's tokens j and t:

    S_end = e^total S + sum over j of e^(total - c_j) b_j k_j w_j^T
    dS = e^total dS_end + sum over t of e^(c_t) x_t dread_t^T
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.decay import decay_to_base_2, without_floor
from linbench.kernels.matrix_state.triton.tiles import (
    extended_dot,
    load_rows,
    load_transposed,
    store_rows,
    sum_dot_transposed,
)


@triton.jit
def summed_decays(log_decay, i, end, H: tl.constexpr):
    """Return log decays to base 2 summed over the tokens of a chunk up to each, i [C], in float64.

    In float32 a token that resets the memory would hide the decays of those that follow. `end` tokens are
    left from the chunk's first on; those after them decay nothing.
    """
    g = decay_to_base_2(tl.load(log_decay + i * H, mask=i < end, other=0.0))
    return tl.cumsum(g.to(tl.float64), axis=0)


@triton.jit
def kept(later, earlier):
    """Return the share of what one token wrote that is left at another, of decays summed up to each."""
    return tl.exp2((later - earlier).to(tl.float32))


@triton.jit
def token_place(n, bh, T, H: tl.constexpr, HEADS: tl.constexpr, C: tl.constexpr):
    """Return where chunk n's first token lies in [B, T, HEADS], for head bh of B H: one serves H / HEADS."""
    return (bh // H * T + n * C) * HEADS + bh % H // (H // HEADS)


@triton.jit
def sum_writes(
    k, values, log_decay, strength, first, starts, last, T,
    H: tl.constexpr, HK: tl.constexpr, HW: tl.constexpr, K: tl.constexpr, W: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BW: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Store the memory before every chunk, starts [B, H, N, K, W], and after the last, last [B, H, K, W].

    Grid (blocks of columns of every B H). k [B, T, HK, K], values [B, T, HW, W], log_decay and strength [B,
    T, H], first [B, H, K, W].
    """
    block, bh = place_in_grid(tl.cdiv(W, BW))
    i, ks, columns = tl.arange(0, C), tl.arange(0, BK), block * BW + tl.arange(0, BW)
    S = load_rows(first + bh * K * W, ks, K, W, columns, W)
    for n in range(0, tl.cdiv(T, C)):
        store_rows(starts + (bh * tl.cdiv(T, C) + n) * K * W, ks, K, W, columns, W, S)
        end, gates = T - n * C, token_place(n, bh, T, H, H, C)
        sums = summed_decays(log_decay + gates, i, end, H)
        total = tl.min(sums, axis=0)  # the last, since no log decay is positive
        weight = kept(total, sums) * tl.load(strength + gates + i * H, mask=i < end, other=0.0)
        written = load_rows(values + token_place(n, bh, T, H, HW, C) * W, i, end, HW * W, columns, W)
        k_t = load_transposed(k + token_place(n, bh, T, H, HK, C) * K, i, end, HK * K, ks, K)
        written = written.to(tl.float32) * weight[:, None]
        S = extended_dot(k_t, written, DT, S * tl.exp2(total.to(tl.float32)))
    store_rows(last + bh * K * W, ks, K, W, columns, W, S)


@triton.jit
def sum_reads(
    x, dread, log_decay, last, ends, first, T,
    H: tl.constexpr, K: tl.constexpr, W: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BW: tl.constexpr, NEGATIVE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Store gradients by the memory after every chunk, ends [B, H, N, K, W], and before the first.

    Grid (blocks of columns of every B H). x [B, T, H, K], dread [B, T, H, W], last and first [B, H, K, W]. If
    NEGATIVE, the gradient of what x reads is -dread.
    """
    block, bh = place_in_grid(tl.cdiv(W, BW))
    i, ks, columns = tl.arange(0, C), tl.arange(0, BK), block * BW + tl.arange(0, BW)
    count = tl.cdiv(T, C)
    dS = load_rows(last + bh * K * W, ks, K, W, columns, W)
    for back in range(0, count):
        n = count - 1 - back
        store_rows(ends + (bh * count + n) * K * W, ks, K, W, columns, W, dS)
        end, here = T - n * C, token_place(n, bh, T, H, H, C)
        sums = summed_decays(log_decay + here, i, end, H)
        left = tl.exp2(sums.to(tl.float32))
        if NEGATIVE:
            left = -left
        x_t = load_transposed(x + here * K, i, end, H * K, ks, K) * left[None, :]
        dread_n = load_rows(dread + here * W, i, end, H * W, columns, W)
        dS = extended_dot(x_t, dread_n, DT, dS * tl.exp2(tl.min(sums, axis=0).to(tl.float32)))
    store_rows(first + bh * K * W, ks, K, W, columns, W, dS)


@triton.jit
def differentiate_writes(
    k, v, log_decay, strength, x, y, do, gram_ends, cross_ends, dk, dv, dstrength, T,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute dk [B, T, H, K], dv [B, T, H, V] and dstrength [B, T, H].

    Grid (chunks of every B H). x reads v from the cross matrix, with the gradient do, and k from the Gram
    matrix, with the gradient -y. gram_ends and cross_ends are those of `sum_reads`.
    """
    n, bh = place_in_grid(tl.cdiv(T, C))
    i, ks, end = tl.arange(0, C), tl.arange(0, BK), T - n * C
    gates, keys = token_place(n, bh, T, H, H, C), token_place(n, bh, T, H, HK, C)
    sums = summed_decays(log_decay + gates, i, end, H)
    # all matrices have a row for each writing token and a column for each that reads
    left = tl.where(i[:, None] <= i[None, :], kept(sums[None, :], sums[:, None]), 0.0)
    right = kept(tl.min(sums, axis=0), sums)[:, None]
    k_n = load_rows(k + keys * K, i, end, HK * K, ks, K)
    x_n, y_n = load_rows(x + gates * K, i, end, H * K, ks, K), load_rows(y + gates * K, i, end, H * K, ks, K)
    seen = extended_dot(k_n, load_transposed(x + gates * K, i, end, H * K, ks, K), DT) * left
    dseen = -extended_dot(k_n, load_transposed(y + gates * K, i, end, H * K, ks, K), DT)
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        v_n = load_rows(v + gates * V, i, end, H * V, vs, V)
        dseen = extended_dot(v_n, load_transposed(do + gates * V, i, end, H * V, vs, V), DT, dseen)
    gram_end = gram_ends + (bh * tl.cdiv(T, C) + n) * K * K
    # of keys as what is read of the Gram matrix, then as what it is written with
    dread = right * extended_dot(k_n, load_rows(gram_end, ks, K, K, ks, K), DT) - extended_dot(seen, y_n, DT)
    dwritten = tl.sum(dread * k_n.to(tl.float32), axis=1)
    dk_n = dread + extended_dot(dseen * left, x_n, DT)
    dk_n += right * extended_dot(k_n, load_transposed(gram_end, ks, K, K, ks, K), DT)
    strength_n = tl.load(strength + gates + i * H, mask=i < end, other=0.0)
    cross_end = cross_ends + (bh * tl.cdiv(T, C) + n) * K * V
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        v_n = load_rows(v + gates * V, i, end, H * V, vs, V)
        dv_n = right * extended_dot(k_n, load_rows(cross_end, ks, K, V, vs, V), DT)
        dv_n += extended_dot(seen, load_rows(do + gates * V, i, end, H * V, vs, V), DT)
        dwritten += tl.sum(dv_n * v_n.to(tl.float32), axis=1)
        store_rows(dv + gates * V, i, end, H * V, vs, V, dv_n * strength_n[:, None])
        dk_n += right * extended_dot(v_n, load_transposed(cross_end, ks, K, V, vs, V), DT)
    store_rows(dk + gates * K, i, end, H * K, ks, K, dk_n * strength_n[:, None])
    tl.store(dstrength + gates + i * H, dwritten, mask=i < end)


@triton.jit
def differentiate_decays(
    k, v, log_decay, strength, x, y, do, grams, crosses, gram_ends, cross_ends, dlog_decay, T,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute dlog_decay [B, T, H]: a decay lies between writes before its token and reads from it on.

    Grid (chunks of every B H). grams and crosses are the starts of `sum_writes`, all else as in
    `differentiate_writes`. What was written before the chunk or is read after it counts through its memories.
    Nothing is subtracted: where little is left of a memory, the rest would be rounding.
    """
    n, bh = place_in_grid(tl.cdiv(T, C))
    i, ks, end = tl.arange(0, C), tl.arange(0, BK), T - n * C
    gates, keys = token_place(n, bh, T, H, H, C), token_place(n, bh, T, H, HK, C)
    sums = summed_decays(log_decay + gates, i, end, H)
    left, total = tl.exp2(sums.to(tl.float32)), tl.min(sums, axis=0)
    strength_n = tl.load(strength + gates + i * H, mask=i < end, other=0.0)
    right = kept(total, sums) * strength_n
    k_n = load_rows(k + keys * K, i, end, HK * K, ks, K)
    x_n, y_n = load_rows(x + gates * K, i, end, H * K, ks, K), load_rows(y + gates * K, i, end, H * K, ks, K)
    memory = (bh * tl.cdiv(T, C) + n) * K
    gram = load_rows(grams + memory * K, ks, K, K, ks, K)
    dgram = load_rows(gram_ends + memory * K, ks, K, K, ks, K)
    through = tl.sum(gram * dgram)
    of_start = -tl.sum(extended_dot(x_n, gram, DT) * y_n, axis=1)
    of_end = tl.sum(extended_dot(k_n, dgram, DT) * k_n.to(tl.float32), axis=1)
    dseen = -extended_dot(k_n, load_transposed(y + gates * K, i, end, H * K, ks, K), DT)
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        v_n = load_rows(v + gates * V, i, end, H * V, vs, V)
        do_n = load_rows(do + gates * V, i, end, H * V, vs, V)
        cross = load_rows(crosses + memory * V, ks, K, V, vs, V)
        dcross = load_rows(cross_ends + memory * V, ks, K, V, vs, V)
        through += tl.sum(cross * dcross)
        of_start += tl.sum(extended_dot(x_n, cross, DT) * do_n.to(tl.float32), axis=1)
        of_end += tl.sum(extended_dot(k_n, dcross, DT) * v_n.to(tl.float32), axis=1)
        dseen = extended_dot(v_n, load_transposed(do + gates * V, i, end, H * V, vs, V), DT, dseen)
    seen = extended_dot(k_n, load_transposed(x + gates * K, i, end, H * K, ks, K), DT) * strength_n[:, None]
    earlier = i[:, None] < i[None, :]
    pairs = tl.where(earlier, kept(sums[None, :], sums[:, None]), 0.0) * seen * dseen
    from_here = sum_dot_transposed(pairs, i[:, None] >= i[None, :], DT)
    dg = through * tl.exp2(total.to(tl.float32)) + tl.sum(tl.where(earlier, from_here, 0.0), axis=0)
    dg += tl.sum(tl.where(earlier, (of_end * right)[:, None], 0.0), axis=0)
    dg += tl.sum(tl.where(earlier, 0.0, (of_start * left)[:, None]), axis=0)
    g = decay_to_base_2(tl.load(log_decay + gates + i * H, mask=i < end, other=0.0))
    tl.store(dlog_decay + gates + i * H, without_floor(dg, g), mask=i < end)
