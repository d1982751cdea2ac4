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
def dot(a, b, DT: tl.constexpr):
    """a @ b, accumulated in float32. float32 factors are split into three TF32 products, which keeps their precision."""
    return tl.dot(a.to(DT), b.to(DT), input_precision="tf32x3" if tl.float32 == DT else None)


@triton.jit
def exact_dot(a, b):
    """a @ b in float32 whatever DT."""
    return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="tf32x3")


@triton.jit
def sum_dot(a, b, DT: tl.constexpr):
    """a @ b where one factor is zeros and ones: sums of log decays. For 16-bit inputs these are rounded to TF32, the same everywhere."""
    return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="tf32x3" if tl.float32 == DT else "tf32")


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
def running_sums(g, BEFORE: tl.constexpr):
    """Sums of g [C] up to and with each token (BEFORE: without it) as two float32 that add up to the float64 sum.

    Differences of float32 sums would keep nothing of the small decays that follow a token which forgets all.
    """
    wide = g.to(tl.float64)
    sums = tl.cumsum(wide, axis=0)
    if BEFORE:
        sums -= wide
    coarse = sums.to(tl.float32)
    return coarse, (sums - coarse.to(tl.float64)).to(tl.float32)


@triton.jit
def from_start(x, g, C: tl.constexpr, DECAY: tl.constexpr, BEFORE: tl.constexpr, DT: tl.constexpr):
    """x_i [C, K] with all that has decayed since the chunk began, its own decay included unless it reads BEFORE it."""
    if DECAY == "vector":
        i = tl.arange(0, C)
        summed = (i[:, None] > i[None, :]) if BEFORE else (i[:, None] >= i[None, :])
        x = x * tl.exp2(sum_dot(summed, g, DT))
    elif DECAY == "scalar":
        coarse, fine = running_sums(g, BEFORE)
        x = x * tl.exp2(coarse + fine)[:, None]
    return x


@triton.jit
def from_start_transposed(x, g, C: tl.constexpr, DECAY: tl.constexpr, BEFORE: tl.constexpr, DT: tl.constexpr):
    """`from_start` of transposes: x [K, C], and a vector decay's g [K, C]."""
    if DECAY == "vector":
        i = tl.arange(0, C)
        summed = (i[None, :] > i[:, None]) if BEFORE else (i[None, :] >= i[:, None])
        x = x * tl.exp2(sum_dot(g, summed, DT))
    elif DECAY == "scalar":
        coarse, fine = running_sums(g, BEFORE)
        x = x * tl.exp2(coarse + fine)[None, :]
    return x


@triton.jit
def to_end(x, g, C: tl.constexpr, DECAY: tl.constexpr, DT: tl.constexpr):
    """x_j [C, K] with all that decays after it until the chunk ends."""
    i = tl.arange(0, C)
    if DECAY == "vector":
        x = x * tl.exp2(sum_dot(i[:, None] < i[None, :], g, DT))
    elif DECAY == "scalar":
        x = x * tl.exp2(tl.sum(tl.where(i[:, None] < i[None, :], g[None, :], 0.0), axis=1))[:, None]
    return x


@triton.jit
def to_end_transposed(x, g, C: tl.constexpr, DECAY: tl.constexpr, DT: tl.constexpr):
    """`to_end` of transposes: x [K, C], and a vector decay's g [K, C]."""
    i = tl.arange(0, C)
    if DECAY == "vector":
        x = x * tl.exp2(sum_dot(g, i[:, None] > i[None, :], DT))
    elif DECAY == "scalar":
        x = x * tl.exp2(tl.sum(tl.where(i[:, None] > i[None, :], g[:, None], 0.0), axis=0))[None, :]
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
def between(g, C: tl.constexpr, DECAY: tl.constexpr, BEFORE: tl.constexpr, STRICT: tl.constexpr, TRANSPOSED: tl.constexpr):
    """[C, C]: what of a write at j is left when i reads, without or with one decay per token; zero where i does not see j."""
    if DECAY == "scalar":
        coarse, fine = running_sums(g, False)
        reading, reading_fine = running_sums(g, BEFORE)
        if TRANSPOSED:
            sums = (reading[None, :] - coarse[:, None]) + (reading_fine[None, :] - fine[:, None])
        else:
            sums = (reading[:, None] - coarse[None, :]) + (reading_fine[:, None] - fine[None, :])
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
            a_q = dot(q, tl.trans(y), DT) * between(g, C, DECAY, Q_BEFORE, Q_BEFORE, False)
        if P:
            a_p = dot(p, tl.trans(y), DT) * between(g, C, DECAY, P_BEFORE, True, False)
    return a_q, a_p


@triton.jit
def score_gradients(
    q, p, y, da, da_t, dl, dl_t, g, C: tl.constexpr, LEVELS: tl.constexpr, DECAY: tl.constexpr, P: tl.constexpr,
    Q_BEFORE: tl.constexpr, P_BEFORE: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Gradients [C, K] of q, p and y, given those of what `scores` returns: da of q's and dl of p's, each with its transpose.

    These need not be masked. P says whether there is a p.
    """
    dq, dp = tl.zeros(q.shape, tl.float32), tl.zeros(q.shape, tl.float32)
    dy = tl.zeros(q.shape, tl.float32)
    if DECAY == "vector":
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
        dq = dot(da * between(g, C, DECAY, Q_BEFORE, Q_BEFORE, False), y, DT)
        dy = dot(da_t * between(g, C, DECAY, Q_BEFORE, Q_BEFORE, True), q, DT)
        if P:
            dp = dot(dl * between(g, C, DECAY, P_BEFORE, True, False), y, DT)
            dy += dot(dl_t * between(g, C, DECAY, P_BEFORE, True, True), p, DT)
    return dq, dp, dy


@triton.jit
def unit_triangular_inverse(lower, C: tl.constexpr, LEVELS: tl.constexpr):
    """(I + lower)^-1 for a strictly lower triangular [C, C], by blockwise substitution.

    With X the inverse of the diagonal blocks of s tokens and M what `lower` holds between the two of each 2s, that of 2s is X - X M X.
    Every factor is a true inverse, so near-parallel keys with beta near two lose nothing, as they do by repeated squaring.
    """
    i = tl.arange(0, C)
    x = tl.where(i[:, None] == i[None, :], 1.0, 0.0) - tl.where(across(0, C, False), lower, 0.0)
    for level in range(1, LEVELS):
        x -= exact_dot(x, exact_dot(tl.where(across(level, C, False), lower, 0.0), x))
    return x


@triton.jit
def sum_along(x, C: tl.constexpr, DECAY: tl.constexpr, OVER: tl.constexpr, DT: tl.constexpr):
    """Sums of x [C, K] over the tokens "from" each on, "after" each, or "before" each: by row for a vector decay, else [C]."""
    if DECAY == "vector":
        i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
        x = exact_dot((i <= j) if OVER == "from" else (i < j) if OVER == "after" else (i > j), x)
    else:
        by_token = tl.sum(x, axis=1)
        x = tl.cumsum(by_token, axis=0, reverse=OVER != "before")
        if OVER != "from":
            x -= by_token
    return x
