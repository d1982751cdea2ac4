"""The building blocks of every schedule, each once: products, decay, scores, the triangular inverse, and their gradients.

A chunk has C = 2^LEVELS tokens. Tiles of tokens are [C, K] or [C, V]; g is the log decay to base 2, [C] with DECAY "scalar" and [C, K]
with "vector". Compile-time switches are in capitals; DT is the type in which matrices are multiplied.

What comes out of a product is never transposed to be the left factor of another: Triton 3.4 to 3.7.0 miscompile that on Hopper. What is
needed transposed is computed, or loaded, transposed.
"""

import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def dot(a, b, DT: tl.constexpr, onto=None):
    """a @ b, accumulated in float32 `onto` what is given. float32 factors are split into three TF32 products, which keeps their precision."""
    return tl.dot(a.to(DT), b.to(DT), onto, input_precision="tf32x3" if DT == tl.float32 else None)


@triton.jit
def halved(x):
    """x [.., ..] in float32 as two bfloat16 that add up to it, to 16 bits."""
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def sum_dot(ones, x, DT: tl.constexpr):
    """ones @ x for a matrix of zeros and ones: sums of log decays, in float32; to 16 bits and more where the factors have 8."""
    if DT == tl.float32:
        summed = tl.dot(ones.to(tl.float32), x, input_precision="tf32x3")
    else:
        high, low = halved(x)
        summed = tl.dot(ones.to(tl.bfloat16), high, tl.dot(ones.to(tl.bfloat16), low))
    return summed


@triton.jit
def sum_dot_transposed(x, ones, DT: tl.constexpr):
    """x @ ones, as `sum_dot`."""
    if DT == tl.float32:
        summed = tl.dot(x, ones.to(tl.float32), input_precision="tf32x3")
    else:
        high, low = halved(x)
        summed = tl.dot(high, ones.to(tl.bfloat16), tl.dot(low, ones.to(tl.bfloat16)))
    return summed


@triton.jit
def load_rows(base, rows, T, stride, columns, width):
    """[len(rows), len(columns)] of a row-major matrix with T rows; zero outside."""
    return tl.load(base + rows[:, None] * stride + columns[None, :], mask=(rows[:, None] < T) & (columns[None, :] < width), other=0.0)


@triton.jit
def load_transposed(base, rows, T, stride, columns, width):
    """The transpose of `load_rows`: [len(columns), len(rows)]."""
    return tl.load(base + rows[None, :] * stride + columns[:, None], mask=(rows[None, :] < T) & (columns[:, None] < width), other=0.0)


@triton.jit
def store_rows(base, rows, T, stride, columns, width, x):
    """Where `load_rows` would read."""
    tl.store(base + rows[:, None] * stride + columns[None, :], x.to(base.dtype.element_ty), mask=(rows[:, None] < T) & (columns[None, :] < width))


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
def keys_from_start(x, g, C: tl.constexpr, DECAY: tl.constexpr, BEFORE: tl.constexpr, TRANSPOSED: tl.constexpr, DT: tl.constexpr):
    """x_i [C, K] (TRANSPOSED: [K, C], and g too) with what a vector decay left since the chunk began: up to i's own, or just BEFORE it."""
    if DECAY == "vector":
        i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
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
def keys_to_end(x, g, C: tl.constexpr, DECAY: tl.constexpr, TRANSPOSED: tl.constexpr, DT: tl.constexpr):
    """x_j [C, K] (TRANSPOSED: [K, C], and g too) with what a vector decay leaves of it when the chunk ends."""
    if DECAY == "vector":
        i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
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
def sees(C: tl.constexpr, STRICT: tl.constexpr, TRANSPOSED: tl.constexpr):
    """[C, C]: whether i sees j, at [i, j] (TRANSPOSED: at [j, i])."""
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    if TRANSPOSED:
        i, j = j, i
    return (i > j) if STRICT else (i >= j)


@triton.jit
def between(g, C: tl.constexpr, DECAY: tl.constexpr, BEFORE: tl.constexpr, STRICT: tl.constexpr, TRANSPOSED: tl.constexpr, DT: tl.constexpr):
    """[C, C]: what of a write at j is left when i reads, without or with one decay per token; zero where i does not see j."""
    if DECAY == "scalar":
        written, written_lost = running_sums(g, False, DT)
        read, read_lost = running_sums(g, BEFORE, DT)
        if TRANSPOSED:
            sums = (read[None, :] - written[:, None]) + (read_lost[None, :] - written_lost[:, None])
        else:
            sums = (read[:, None] - written[None, :]) + (read_lost[:, None] - written_lost[None, :])
        left = tl.exp2(tl.where(sees(C, STRICT, TRANSPOSED), sums, float("-inf")))
    else:
        left = tl.where(sees(C, STRICT, TRANSPOSED), 1.0, 0.0)
    return left


@triton.jit
def across(level, C: tl.constexpr, TRANSPOSED: tl.constexpr):
    """[C, C]: whether, of the 2^(level + 1) tokens that both belong to, i lies in the later and j in the earlier half.

    Every j < i does at exactly one level: that of the highest bit in which they differ.
    """
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    if TRANSPOSED:
        i, j = j, i
    return (((i ^ j) >> level) == 1) & (i > j)


@triton.jit
def to_middle(g, level, C: tl.constexpr, BEFORE: tl.constexpr, DT: tl.constexpr):
    """[C, K]: what decays between a token and the middle of the 2^(level + 1) it belongs to; at most one, whatever the decay.

    A token of the later half reads: from the middle up to itself (to just BEFORE it). One of the earlier half was written: from after
    itself up to the middle.
    """
    t, u = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    reads = (u < t) if BEFORE else (u <= t)
    summed = (((t ^ u) >> level) == 0) & (((t >> level) & 1 == 1) & reads | ((t >> level) & 1 == 0) & (u > t))
    return tl.exp2(sum_dot(summed, g, DT))


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
def precise_dot(a, b, DT: tl.constexpr):
    """a @ b of two float32 matrices: as exactly as float32 inputs need, or to 16 bits where the inputs have 8."""
    if DT == tl.float32:
        product = tl.dot(a, b, input_precision="tf32x3")
    else:
        a_high, a_low = halved(a)
        b_high, b_low = halved(b)
        product = tl.dot(a_high, b_high, tl.dot(a_high, b_low, tl.dot(a_low, b_high)))
    return product


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


@triton.jit
def by_token(x, DECAY: tl.constexpr):
    """Of products key . gradient [C, K], what the gradient of a decay needs: all for a vector decay, else their sums [C]."""
    if DECAY != "vector":
        x = tl.sum(x, axis=1)
    return x


@triton.jit
def sum_along(x, C: tl.constexpr, DECAY: tl.constexpr, OVER: tl.constexpr, DT: tl.constexpr):
    """Sums of x ([C, K] for a vector decay, else [C]) over the tokens "from" each on, "after" each, or "before" each."""
    if DECAY == "vector":
        i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
        x = sum_dot((i <= j) if OVER == "from" else (i < j) if OVER == "after" else (i > j), x, DT)
    else:
        total = tl.cumsum(x, axis=0, reverse=OVER != "before")
        x = total if OVER == "from" else total - x
    return x
