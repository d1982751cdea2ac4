"""Decay inside a chunk: since its start, to its end, and between a write and a reading.

A chunk has C tokens, a power of two, of numbers t [C] that begin with a multiple of C. g is its log decay to
base 2: [C, K] with DECAY "vector", None with "none". With "scalar" it is a place in memory, where
`sum_decays` has stored the sums since the chunk began: there every use loads them in the layout that it
needs, while a value in registers would have to be summed and moved between threads each time. Rules for any
decay are in the torch form, `linbench.kernels.matrix_state.decay`. Compile-time switches are in capitals.
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.tiles import (
    load_rows,
    load_transposed,
    sum_dot,
    sum_dot_transposed,
    token_of,
)


@triton.jit
def to_base_2(x):
    """Convert a natural-log exponent to base 2."""
    return x * 1.4426950408889634


@triton.jit
def decay_to_base_2(g):
    """Return log decays to base 2 in float32, each at least float32's floor in `linbench.kernels.decays`.

    Nothing is left at the floor, and what is summed with it keeps its digits, as do products with zeros and
    ones, which an infinity would make NaN. NaN stays NaN.
    """
    # in its own type first: float64 goes beyond float32
    return to_base_2(tl.where(g < -128.0, -128.0, g).to(tl.float32))


@triton.jit
def without_floor(dg, g):
    """Return gradients dg of log decays, zero where g, as from `decay_to_base_2`, is at its floor."""
    return tl.where(g <= to_base_2(-127.99), 0.0, dg)


@triton.jit
def sum_decays(
    g,
    sums,
    bh,
    block,
    N,
    T,
    stride,
    C: tl.constexpr,
    AT_ONCE: tl.constexpr,
    STEPS: tl.constexpr,
    DT: tl.constexpr,
):
    """Store the log decays of recurrence bh to base 2, summed since their chunk began, for AT_ONCE chunks.

    sums is [B, H, N, C]; for float32 [B, H, N, 2, C], with what rounding the sums lost: after a token that
    forgets all, their differences would keep little of the small decays that follow. One float32 is enough
    beside 16-bit factors.
    """
    n = block * AT_ONCE + tl.arange(0, AT_ONCE)[:, None]
    i = tl.arange(0, C)[None, :]
    t = token_of(n * C + i, T, True, STEPS)
    x = decay_to_base_2(tl.load(g + t * stride, mask=t < T // STEPS, other=0.0))
    if DT == tl.float32:
        wide = tl.cumsum(x.to(tl.float64), axis=1)
        summed = wide.to(tl.float32)
        at = sums + (bh * N + n) * 2 * C + i
        tl.store(at + C, (wide - summed.to(tl.float64)).to(tl.float32), mask=n < N)
    else:
        summed = tl.cumsum(x, axis=1)
        at = sums + (bh * N + n) * C + i
    tl.store(at, summed, mask=n < N)


@triton.jit
def lay_out(gate, laid, bh, block, N, T, stride, C: tl.constexpr, AT_ONCE: tl.constexpr):
    """Store a gate of recurrence bh for AT_ONCE chunks: of every token in float32, zero past the end.

    From laid [B, H, N, C] the next chunk's can be loaded while a kernel works on one; 16-bit gates that do
    not lie in a row cannot be.
    """
    n = block * AT_ONCE + tl.arange(0, AT_ONCE)[:, None]
    i = tl.arange(0, C)[None, :]
    t = n * C + i
    tl.store(
        laid + (bh * N + n) * C + i,
        tl.load(gate + t * stride, mask=t < T, other=0.0).to(tl.float32),
        mask=n < N,
    )


@triton.jit
def decay_gradients(
    g, dsums, dg, bh, block, P, stride_p, N, T, stride, C: tl.constexpr,
    AT_ONCE: tl.constexpr, STEPS: tl.constexpr, BEFORE: tl.constexpr
):  # fmt: skip
    """Store the gradient dg of the log decay g of recurrence bh, for AT_ONCE chunks.

    It comes from dsums [P, B, H, N, 3, C] as `store_decay_parts` stored them.
    """
    n = block * AT_ONCE + tl.arange(0, AT_ONCE)[:, None]
    i = tl.arange(0, C)[None, :]
    at = dsums + (bh * N + n) * 3 * C + i
    later, earlier, own = (
        tl.zeros([AT_ONCE, C], tl.float32),
        tl.zeros([AT_ONCE, C], tl.float32),
        tl.zeros([AT_ONCE, C], tl.float32),
    )
    for _ in range(0, P):
        later += tl.load(at, mask=n < N, other=0.0)
        earlier += tl.load(at + C, mask=n < N, other=0.0)
        own += tl.load(at + (2 * C if BEFORE else C), mask=n < N, other=0.0)
        at += stride_p
    t = token_of(n * C + i, T, True, STEPS)
    total = tl.cumsum(later, axis=1, reverse=True) + tl.cumsum(earlier, axis=1) - own
    total = without_floor(total, decay_to_base_2(tl.load(g + t * stride, mask=t < T // STEPS, other=0.0)))
    tl.store(dg + t * stride, total.to(dg.dtype.element_ty), mask=t < T // STEPS)


@triton.jit
def store_decay_parts(dsums, chunk, kept, later, earlier, after, BEFORE: tl.constexpr, C: tl.constexpr):
    """Store parts of the gradient of a chunk's log decay, which `decay_gradients` sums.

    A token's log decay gets `later` [C] of itself and the tokens after it, `after` [C, K] (if any reads
    BEFORE its decay) of those after it, `earlier` [C] of those before it, and kept whatever the token.
    `decay_gradients` takes out again what was not the token's own: `earlier`, unless any reads BEFORE.
    """
    i = tl.arange(0, C)
    dsums += chunk * 3 * C
    if BEFORE:
        after_n = tl.sum(after, axis=1)
        own = earlier + after_n
        later += after_n
        tl.store(dsums + 2 * C + i, own)
    # to other threads at once
    tl.store(
        dsums + i[:, None] + tl.arange(0, 2)[None, :] * C,
        tl.join(later + tl.where(i == C - 1, kept, 0.0), earlier),
    )


@triton.jit
def scalar_decay(sums, chunk, C: tl.constexpr, DECAY: tl.constexpr, DT: tl.constexpr):
    """Return g of a chunk if it is a scalar decay, else None."""
    if DECAY == "scalar":
        g = sums + chunk * (2 * C if DT == tl.float32 else C)
    else:
        g = None
    return g


@triton.jit
def load_decay(
    g, sums, chunk, rows, T, stride, columns, width, DECAY: tl.constexpr,
    TRANSPOSED: tl.constexpr, STEPS: tl.constexpr, DT: tl.constexpr
):  # fmt: skip
    """Return g of a chunk; [C, K] as [K, C] if TRANSPOSED. Steps past the end decay nothing."""
    if DECAY == "vector":
        tokens = token_of(rows, T, True, STEPS)
        if TRANSPOSED:
            g_n = decay_to_base_2(load_transposed(g, tokens, T // STEPS, stride, columns, width))
        else:
            g_n = decay_to_base_2(load_rows(g, tokens, T // STEPS, stride, columns, width))
    else:
        g_n = scalar_decay(sums, chunk, rows.shape[0], DECAY, DT)
    return g_n


@triton.jit
def running_sums(g, C: tl.constexpr, BEFORE: tl.constexpr, DT: tl.constexpr):
    """Return the sums [C] of a scalar decay up to and with each token (BEFORE: without it).

    For float32 also what rounding lost of them.
    """
    i = tl.arange(0, C) - BEFORE
    if BEFORE:
        sums = tl.load(g + i, mask=i >= 0, other=0.0)
    else:
        sums = tl.load(g + i)  # a mask of which all is true would be computed all the same
    lost = tl.zeros([C], tl.float32)
    if DT == tl.float32:
        lost = tl.load(g + C + i, mask=i >= 0, other=0.0)
    return sums, lost


@triton.jit
def sums_after(g, C: tl.constexpr, DT: tl.constexpr):
    """Return the sums [C] of a scalar decay over the tokens after each."""
    sums, lost = running_sums(g, C, False, DT)
    left = tl.load(g + C - 1) - sums
    if DT == tl.float32:
        left += tl.load(g + 2 * C - 1) - lost
    return left


@triton.jit
def keys_from_start(
    x, g, t, DECAY: tl.constexpr, BEFORE: tl.constexpr, TRANSPOSED: tl.constexpr, DT: tl.constexpr
):
    """Scale x_i [C, K] (TRANSPOSED: [K, C], and g too) by what a vector decay left since the chunk began.

    It counts up to i's own decay, or just BEFORE it.
    """
    if DECAY == "vector":
        i, j = t[:, None], t[None, :]
        if TRANSPOSED:
            x = x * tl.exp2(sum_dot_transposed(g, (j > i) if BEFORE else (j >= i), DT))
        else:
            x = x * tl.exp2(sum_dot((i > j) if BEFORE else (i >= j), g, DT))
    return x


@triton.jit
def values_from_start(x, g, factor, DECAY: tl.constexpr, BEFORE: tl.constexpr, DT: tl.constexpr):
    """Scale x_i [C, V] by factor and by what a scalar decay left since the chunk began.

    One number per token commutes past the state, and is cheaper on that side.
    """
    if DECAY == "scalar":
        sums, lost = running_sums(g, x.shape[0], BEFORE, DT)
        x = x * (factor * tl.exp2(sums + lost))[:, None]
    else:
        x = factor * x
    return x


@triton.jit
def keys_to_end(x, g, t, DECAY: tl.constexpr, TRANSPOSED: tl.constexpr, DT: tl.constexpr):
    """Scale x_j [C, K] (TRANSPOSED: [K, C], and g too) by what a vector decay leaves at the chunk's end."""
    if DECAY == "vector":
        i, j = t[:, None], t[None, :]
        if TRANSPOSED:
            x = x * tl.exp2(sum_dot_transposed(g, i > j, DT))
        else:
            x = x * tl.exp2(sum_dot(j > i, g, DT))
    return x


@triton.jit
def values_to_end(x, g, DECAY: tl.constexpr, DT: tl.constexpr):
    """Scale x_j [C, V] by what a scalar decay leaves at the chunk's end."""
    if DECAY == "scalar":
        x = x * tl.exp2(sums_after(g, x.shape[0], DT))[:, None]
    return x


@triton.jit
def chunk_decay(sums, kept, chunk, ks, K, C: tl.constexpr, DECAY: tl.constexpr, DT: tl.constexpr):
    """Return the decay of a whole chunk.

    It is the log [] of a scalar decay; for a vector decay, if it is known, what it keeps of rows ks [K].
    """
    if DECAY == "scalar":
        decay = tl.load(scalar_decay(sums, chunk, C, DECAY, DT) + C - 1)
    elif DECAY == "vector" and kept is not None:
        decay = tl.load(kept + chunk * K + ks, mask=ks < K, other=0.0)
    else:
        decay = tl.zeros([1], tl.float32)
    return decay


@triton.jit
def row_decay(g, AXIS: tl.constexpr):
    """Return what a vector decay g of a chunk, along AXIS, keeps of the state's rows [K]."""
    return tl.exp2(tl.sum(g, axis=AXIS))


@triton.jit
def decay_state(state, decay, DECAY: tl.constexpr):
    """Return what is left of the state [K, V] after a chunk, from its `chunk_decay`."""
    if DECAY == "vector":
        state = state * decay[:, None]
    elif DECAY == "scalar":
        state = state * tl.exp2(decay)
    return state


@triton.jit
def sees(t, STRICT: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Return whether i sees j, [C, C], at [i, j] (TRANSPOSED: at [j, i])."""
    i, j = t[:, None], t[None, :]
    if TRANSPOSED:
        i, j = j, i
    return (i > j) if STRICT else (i >= j)


@triton.jit
def between(
    g,
    factor,
    t,
    DECAY: tl.constexpr,
    BEFORE: tl.constexpr,
    STRICT: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    DT: tl.constexpr,
):
    """Return [C, C], factor > 0 times what is left of a write at j when i reads; zero where i does not see j.

    Without a decay, or with one per token.
    """
    if DECAY == "scalar":
        written, written_lost = running_sums(g, t.shape[0], False, DT)
        read, read_lost = running_sums(g, t.shape[0], BEFORE, DT)
        # where a thread has more pairs than tokens, the factor's logarithm is less work than the factor
        BY_TOKEN: tl.constexpr = t.shape[0] > 16
        if BY_TOKEN:
            by = tl.log2(tl.full([], factor, tl.float32))
            if DT == tl.float32:  # the sums' own differences stay exact
                read_lost += by
            else:
                read += by
        sums = (read[None, :] - written[:, None]) if TRANSPOSED else (read[:, None] - written[None, :])
        if DT == tl.float32:  # of every pair of tokens: beside 16-bit factors not even zeros are added
            lost = (
                (read_lost[None, :] - written_lost[:, None])
                if TRANSPOSED
                else (read_lost[:, None] - written_lost[None, :])
            )
            sums += lost
        left = tl.exp2(tl.where(sees(t, STRICT, TRANSPOSED), sums, float("-inf")))
        if not BY_TOKEN:
            left *= factor
    else:
        left = tl.where(sees(t, STRICT, TRANSPOSED), factor, 0.0)
    return left


@triton.jit
def later_half(level, t):
    """Return whether a token lies in the later half of the 2^(level + 1) it belongs to, [C, 1]."""
    return ((t[:, None] >> level) & 1) == 1


@triton.jit
def pairs(level, t):
    """Return whether i and j lie in different halves of the 2^(level + 1) tokens that both belong to, [C, C].

    Every i != j do at exactly one level: that of the highest bit in which they differ.
    """
    return ((t[:, None] ^ t[None, :]) >> level) == 1


@triton.jit
def to_middle(g, level, t, BEFORE: tl.constexpr, DT: tl.constexpr):
    """Return what is left [C, K] between a token and the middle of the 2^(level + 1) it belongs to.

    It is at most one, whatever the decay. A token of the later half reads: from the middle up to itself (to
    just BEFORE it). One of the earlier half was written: from after itself up to the middle.

    Beside 16-bit inputs it goes into both factors of a `wide_dot`, or into one and the result, and each gets
    back what TF32 takes of it: a factor is cut off after eleven bits, by 2^-11 / m of a mantissa m on
    average; over all mantissas, as common as 1 / m, by 1 / (2 ln 2) of 2^-11. So errors of many tokens do not
    add up; a number of eight bits is cut off to what it was.
    """
    i, u, later = t[:, None], t[None, :], later_half(level, t)
    if BEFORE:
        summed = ((i ^ u) >> level == 0) & ((u < i) == later) & (u != i)
    else:
        summed = ((i ^ u) >> level == 0) & ((u <= i) == later)
    left = tl.exp2(sum_dot(summed, g, DT))
    if DT != tl.float32:
        left *= 1 + 0.7213 / 2048
    return left


@triton.jit
def sum_along(x, t, OVER: tl.constexpr, DT: tl.constexpr):
    """Sum x [C, K] over the tokens "from" each on, "after" each, or "before" each."""
    i, j = t[:, None], t[None, :]
    return sum_dot((i <= j) if OVER == "from" else (i < j) if OVER == "after" else (i > j), x, DT)
