"""What decays inside a chunk: since its start, to its end, and between a write and a reading.

A chunk has C tokens, a power of two, of numbers t [C] that begin with a multiple of C. g is the log decay to base 2: [C] with DECAY
"scalar", [C, K] with "vector", None with "none". What must hold for any decay is in the torch form,
`linbench.kernels.matrix_state.decay`. Compile-time switches are in capitals.
"""

import triton
import triton.language as tl

from linbench.kernels.matrix_state.triton.tiles import load_rows, load_transposed, sum_dot, sum_dot_transposed

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def load_decay(base, rows, T, stride, columns, width, DECAY: tl.constexpr, TRANSPOSED: tl.constexpr):
    """g of a chunk: [C], or [C, K] (TRANSPOSED: [K, C]), or None; tokens past the end decay nothing."""
    if DECAY == "vector":
        if TRANSPOSED:
            g = load_transposed(base, rows, T, stride, columns, width).to(tl.float32) * LOG2E
        else:
            g = load_rows(base, rows, T, stride, columns, width).to(tl.float32) * LOG2E
    elif DECAY == "scalar":
        g = tl.load(base + rows * stride, mask=rows < T, other=0.0).to(tl.float32) * LOG2E
    else:
        g = None
    return g


@triton.jit
def one_per_token(base, decays, rows, T, stride, DECAY: tl.constexpr):
    """g of a chunk [C] if it is a scalar decay, else None."""
    if DECAY == "scalar":
        g = load_decay(base + decays, rows, T, stride, rows, T, DECAY, False)
    else:
        g = None
    return g


@triton.jit
def running_sums(g, BEFORE: tl.constexpr, DT: tl.constexpr):
    """Sums of g [C] up to and with each token (BEFORE: without it), and for float32 what rounding them lost.

    After a token that forgets all, differences of float32 sums keep little of the small decays that follow: enough beside 16-bit factors.
    """
    if DT == tl.float32:
        wide = tl.cumsum(g.to(tl.float64), axis=0)
        if BEFORE:
            wide -= g.to(tl.float64)
        sums = wide.to(tl.float32)
        lost = (wide - sums.to(tl.float64)).to(tl.float32)
    else:
        sums = tl.cumsum(g, axis=0)
        if BEFORE:
            sums -= g
        lost = tl.zeros(g.shape, tl.float32)
    return sums, lost


@triton.jit
def sums_after(g, DT: tl.constexpr):
    """Sums of g [C] over the tokens after each."""
    sums, lost = running_sums(g, False, DT)
    if DT == tl.float32:
        wide = tl.sum(g.to(tl.float64), axis=0)
        total = wide.to(tl.float32)
        left = (total - sums) + ((wide - total.to(tl.float64)).to(tl.float32) - lost)
    else:
        left = tl.sum(g, axis=0) - sums
    return left


@triton.jit
def keys_from_start(x, g, t, DECAY: tl.constexpr, BEFORE: tl.constexpr, TRANSPOSED: tl.constexpr, DT: tl.constexpr):
    """x_i [C, K] (TRANSPOSED: [K, C], and g too) with what a vector decay left since the chunk began: up to i's own, or just BEFORE it."""
    if DECAY == "vector":
        i, j = t[:, None], t[None, :]
        if TRANSPOSED:
            x = x * tl.exp2(sum_dot_transposed(g, (j > i) if BEFORE else (j >= i), DT))
        else:
            x = x * tl.exp2(sum_dot((i > j) if BEFORE else (i >= j), g, DT))
    return x


@triton.jit
def values_from_start(x, g, DECAY: tl.constexpr, BEFORE: tl.constexpr, DT: tl.constexpr):
    """x_i [C, V] likewise, for a scalar decay: one number per token commutes past the state, and is cheaper on that side."""
    if DECAY == "scalar":
        sums, lost = running_sums(g, BEFORE, DT)
        x = x * tl.exp2(sums + lost)[:, None]
    return x


@triton.jit
def keys_to_end(x, g, t, DECAY: tl.constexpr, TRANSPOSED: tl.constexpr, DT: tl.constexpr):
    """x_j [C, K] (TRANSPOSED: [K, C], and g too) with what a vector decay leaves of it when the chunk ends."""
    if DECAY == "vector":
        i, j = t[:, None], t[None, :]
        if TRANSPOSED:
            x = x * tl.exp2(sum_dot_transposed(g, i > j, DT))
        else:
            x = x * tl.exp2(sum_dot(j > i, g, DT))
    return x


@triton.jit
def values_to_end(x, g, DECAY: tl.constexpr, DT: tl.constexpr):
    """x_j [C, V] likewise, for a scalar decay."""
    if DECAY == "scalar":
        x = x * tl.exp2(sums_after(g, DT))[:, None]
    return x


@triton.jit
def whole(state, g, DECAY: tl.constexpr):
    """What is left of the state [K, V] after the chunk; g [C] or [K, C]."""
    if DECAY == "vector":
        state = state * tl.exp2(tl.sum(g, axis=1))[:, None]
    elif DECAY == "scalar":
        state = state * tl.exp2(tl.sum(g, axis=0))
    return state


@triton.jit
def kept_rows(kept, ks, K):
    """[K, 1]: what a vector decay leaves of the state's rows after a chunk, where that is known."""
    return tl.load(kept + ks, mask=ks < K, other=0.0)[:, None]


@triton.jit
def sees(t, STRICT: tl.constexpr, TRANSPOSED: tl.constexpr):
    """[C, C]: whether i sees j, at [i, j] (TRANSPOSED: at [j, i])."""
    i, j = t[:, None], t[None, :]
    if TRANSPOSED:
        i, j = j, i
    return (i > j) if STRICT else (i >= j)


@triton.jit
def between(g, t, DECAY: tl.constexpr, BEFORE: tl.constexpr, STRICT: tl.constexpr, TRANSPOSED: tl.constexpr, DT: tl.constexpr):
    """[C, C]: what of a write at j is left when i reads, without or with one decay per token; zero where i does not see j."""
    if DECAY == "scalar":
        written, written_lost = running_sums(g, False, DT)
        read, read_lost = running_sums(g, BEFORE, DT)
        if TRANSPOSED:
            sums = (read[None, :] - written[:, None]) + (read_lost[None, :] - written_lost[:, None])
        else:
            sums = (read[:, None] - written[None, :]) + (read_lost[:, None] - written_lost[None, :])
        left = tl.where(sees(t, STRICT, TRANSPOSED), tl.exp2(tl.minimum(sums, 0.0)), 0.0)
    else:
        left = tl.where(sees(t, STRICT, TRANSPOSED), 1.0, 0.0)
    return left


@triton.jit
def across(level, t, TRANSPOSED: tl.constexpr):
    """[C, C]: whether, of the 2^(level + 1) tokens that both belong to, i lies in the later and j in the earlier half.

    Every j < i does at exactly one level: that of the highest bit in which they differ.
    """
    i, j = t[:, None], t[None, :]
    if TRANSPOSED:
        i, j = j, i
    return (((i ^ j) >> level) == 1) & (i > j)


@triton.jit
def to_middle(g, level, t, BEFORE: tl.constexpr, DT: tl.constexpr):
    """[C, K]: what decays between a token and the middle of the 2^(level + 1) it belongs to; at most one, whatever the decay.

    A token of the later half reads: from the middle up to itself (to just BEFORE it). One of the earlier half was written: from after
    itself up to the middle.
    """
    i, u = t[:, None], t[None, :]
    later = ((i >> level) & 1) == 1
    if BEFORE:
        summed = ((i ^ u) >> level == 0) & ((u < i) == later) & (u != i)
    else:
        summed = ((i ^ u) >> level == 0) & ((u <= i) == later)
    return tl.exp2(sum_dot(summed, g, DT))


@triton.jit
def by_token(x, DECAY: tl.constexpr):
    """Of products key . gradient [C, K], what the gradient of a decay needs: all for a vector decay, else their sums [C]."""
    if DECAY != "vector":
        x = tl.sum(x, axis=1)
    return x


@triton.jit
def sum_along(x, t, DECAY: tl.constexpr, OVER: tl.constexpr, DT: tl.constexpr):
    """Sums of x ([C, K] for a vector decay, else [C]) over the tokens "from" each on, "after" each, or "before" each."""
    if DECAY == "vector":
        i, j = t[:, None], t[None, :]
        x = sum_dot((i <= j) if OVER == "from" else (i < j) if OVER == "after" else (i > j), x, DT)
    else:
        total = tl.cumsum(x, axis=0, reverse=OVER != "before")
        x = total if OVER == "from" else total - x
    return x
