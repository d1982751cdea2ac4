"""The systems of least squares, a chunk of one head for a program: what queries read, and its gradient.

An iteration needs products with G_t alone, as in the torch form, `linbench.kernels.least_squares.chunkwise`:

    G_t p_t = e^{c_t} G p_t + sum over j <= t of b_j e^{c_t - c_j} (k_j . p_t) k_j

A program loads the chunk's keys and the Gram matrix G before it once. These, and the vectors of all tokens of
the chunk, stay on the chip for all steps, each of which is three products of matrices. No chunk waits for
another: `sums` has stored what each starts from.
"""

import triton
import triton.language as tl

from linbench.kernels.least_squares.triton.sums import kept, summed_decays, token_place
from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.tiles import extended_dot, load_rows, load_transposed, store_rows


@triton.jit
def _times(p, start, weights, k, k_t, left, DT: tl.constexpr):
    """Return G_t p_t [C, K]."""
    own = extended_dot(extended_dot(p, k_t, DT) * weights, k, DT)
    return extended_dot(p * left, start, DT, own)


@triton.jit
def _dot_rows(x, y):
    """Return the products [C, 1] of vectors [C, K]."""
    return tl.sum(x * y, axis=1)[:, None]


@triton.jit
def _ratio(numerator, denominator, there):
    """Return the ratio where it is `there`, elsewhere zero."""
    return tl.where(there, numerator / tl.where(there, denominator, 1.0), 0.0)


@triton.jit
def _conjugate_gradient(b, start, weights, k, k_t, left, ridge, steps, DT: tl.constexpr):
    """Return x [C, K] after steps from zero, by the rules of `linbench.kernels.least_squares.solvers`.

    A token is done where its residual has fallen to the rounding of its products. A chunk whose tokens are
    all done takes no more steps.
    """
    ROUNDING: tl.constexpr = 1.4210854715202004e-14 if DT == tl.float32 else 5.820766091346741e-11
    x, r, p = tl.zeros_like(b), b, b
    rr = _dot_rows(r, r)
    rounding = ROUNDING * rr  # the square of 2^-23, beside 16-bit keys of 2^-17
    taken = 0
    # what is NaN is not done, so that it makes NaN
    while (tl.sum((rr <= rounding).to(tl.int32)) < rr.shape[0]) & (taken < steps):
        taken += 1
        Ap = _times(p, start, weights, k, k_t, left, DT) + p * ridge
        curvature = _dot_rows(p, Ap)
        going = (rr > rounding) & (curvature > 0)
        step = _ratio(rr, curvature, going)
        x += step * p
        r -= step * Ap
        after = _dot_rows(r, r)
        p = r + _ratio(after, rr, going) * p
        rr = after
    return x


@triton.jit
def _chebyshev(b, start, weights, k, k_t, left, ridge, lowest, highest, steps, DT: tl.constexpr):
    """Return x [C, K] after steps; `lowest` and `highest` [C, 1] are bounds of the spectrum."""
    size, ratio = 2.0 / (highest + lowest), (highest - lowest) / (highest + lowest)
    x, before, weight = size * b, tl.zeros_like(b), tl.zeros_like(size) + 2.0
    for _ in range(0, steps):
        weight = 1.0 / (1.0 - ratio * ratio * weight / 4.0)
        Ax = _times(x, start, weights, k, k_t, left, DT) + x * ridge
        after = weight * (x - size * (Ax - b)) + (1.0 - weight) * before
        before = x
        x = after
    return x


@triton.jit
def _solve(
    b, start, weights, k, k_t, left, ridge, least, bound, steps, i, end, ks,
    H: tl.constexpr, K: tl.constexpr, METHOD: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Return x [C, K] with (G_t + diag(ridge_t)) x_t = b_t, where the ridge counts as `least` or more.

    b is divided by its largest entry before, since its square may be too small to tell from zero. `bound`
    points at the bound of the chunk's first token.
    """
    ridge = tl.where(ridge < least, least, ridge)  # a maximum would drop NaN
    size = tl.max(tl.abs(b), axis=1)[:, None]
    size = tl.where(size > 0, size, 1.0)
    if METHOD == "cg":
        x = _conjugate_gradient(b / size, start, weights, k, k_t, left, ridge, steps, DT)
    else:
        lowest = tl.min(tl.where(ks[None, :] < K, ridge, float("inf")), axis=1)
        highest = tl.max(ridge, axis=1) + tl.load(bound + i * H, mask=i < end, other=0.0)
        lowest, highest = tl.where(i < end, lowest, 1.0)[:, None], tl.where(i < end, highest, 1.0)[:, None]
        x = _chebyshev(b / size, start, weights, k, k_t, left, ridge, lowest, highest, steps, DT)
    return x * size


@triton.jit
def _load_system(
    k, log_decay, strength, ridge, by_row, by_token, by_head, by_key, grams, n, bh, i, ks, T,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, C: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """Load G before chunk n, weights [C, C], k, k^T, e^c [C, 1], the ridge [C, K] and the least one [C, 1].

    The ridge [B, T, H, K] has strides of its own, since all tokens may share one.
    """
    gates, keys, end = token_place(n, bh, T, H, H, C), token_place(n, bh, T, H, HK, C), T - n * C
    sums = summed_decays(log_decay + gates, i, end, H)
    weights = tl.where(i[:, None] >= i[None, :], kept(sums[:, None], sums[None, :]), 0.0)
    weights *= tl.load(strength + gates + i * H, mask=i < end, other=0.0)[None, :]
    left = tl.exp2(sums.to(tl.float32))[:, None]
    start = load_rows(grams + (bh * tl.cdiv(T, C) + n) * K * K, ks, K, K, ks, K)
    k_n = load_rows(k + keys * K, i, end, HK * K, ks, K)
    k_t = load_transposed(k + keys * K, i, end, HK * K, ks, K)
    squares = tl.sum(k_t.to(tl.float32) * k_t.to(tl.float32), axis=0)[None, :]
    of_start = tl.sum(tl.where(ks[:, None] == ks[None, :], start, 0.0))
    least = LEAST * (1.0 + left * of_start + tl.sum(weights * squares, axis=1)[:, None])
    first = bh // H * by_row + bh % H * by_head + n.to(tl.int64) * C * by_token
    ridge_n = tl.load(
        ridge + first + i[:, None] * by_token + ks[None, :] * by_key,
        mask=(i[:, None] < end) & (ks[None, :] < K),
        other=0.0,
    )
    return start, weights, k_n, k_t, left, ridge_n, least


@triton.jit(do_not_specialize=["steps", "by_row", "by_token", "by_head", "by_key"])
def read(
    q, k, v, log_decay, strength, ridge, bound, grams, crosses, x, o,
    T, steps, by_row, by_token, by_head, by_key,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    METHOD: tl.constexpr, LEAST: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute x [B, T, H, K] with (G_t + diag(ridge_t)) x_t = q_t, and o [B, T, H, V], what it reads.

    Grid (chunks of every B H). q and k [B, T, HK, K], v [B, T, H, V], log_decay, strength and bound [B, T,
    H], grams [B, H, N, K, K], crosses [B, H, N, K, V].
    """
    n, bh = place_in_grid(tl.cdiv(T, C))
    i, ks, end = tl.arange(0, C), tl.arange(0, BK), T - n * C
    here, keys = token_place(n, bh, T, H, H, C), token_place(n, bh, T, H, HK, C)
    start, weights, k_n, k_t, left, ridge_n, least = _load_system(
        k, log_decay, strength, ridge, by_row, by_token, by_head, by_key, grams, n, bh, i, ks, T,
        H, HK, K, C, LEAST,
    )  # fmt: skip
    q_n = load_rows(q + keys * K, i, end, HK * K, ks, K).to(tl.float32)
    x_n = _solve(
        q_n, start, weights, k_n, k_t, left, ridge_n, least, bound + here, steps, i, end, ks,
        H, K, METHOD, DT,
    )  # fmt: skip
    store_rows(x + here * K, i, end, H * K, ks, K, x_n)
    seen, cross = extended_dot(x_n, k_t, DT) * weights, crosses + (bh * tl.cdiv(T, C) + n) * K * V
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        own = extended_dot(seen, load_rows(v + here * V, i, end, H * V, vs, V), DT)
        o_n = extended_dot(x_n * left, load_rows(cross, ks, K, V, vs, V), DT, own)
        store_rows(o + here * V, i, end, H * V, vs, V, o_n)


@triton.jit(do_not_specialize=["steps", "by_row", "by_token", "by_head", "by_key"])
def differentiate_reads(
    k, v, log_decay, strength, ridge, bound, grams, crosses, x, do, y, dridge,
    T, steps, by_row, by_token, by_head, by_key,
    H: tl.constexpr, HK: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    RIDGE: tl.constexpr, METHOD: tl.constexpr, LEAST: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute y [B, T, H, K], the gradient of q, and dridge if RIDGE.

    Grid and shapes as `read`'s. y solves the same systems for the gradient of x; that of a system's matrix is
    -y x^T.
    """
    n, bh = place_in_grid(tl.cdiv(T, C))
    i, ks, end, here = tl.arange(0, C), tl.arange(0, BK), T - n * C, token_place(n, bh, T, H, H, C)
    start, weights, k_n, k_t, left, ridge_n, least = _load_system(
        k, log_decay, strength, ridge, by_row, by_token, by_head, by_key, grams, n, bh, i, ks, T,
        H, HK, K, C, LEAST,
    )  # fmt: skip
    cross = crosses + (bh * tl.cdiv(T, C) + n) * K * V
    dseen, dx = tl.zeros([C, C], tl.float32), tl.zeros([C, BK], tl.float32)
    for block in range(0, tl.cdiv(V, BV)):
        vs = block * BV + tl.arange(0, BV)
        do_n = load_rows(do + here * V, i, end, H * V, vs, V)
        dseen = extended_dot(do_n, load_transposed(v + here * V, i, end, H * V, vs, V), DT, dseen)
        dx = extended_dot(do_n, load_transposed(cross, ks, K, V, vs, V), DT, dx)
    dx = extended_dot(dseen * weights, k_n, DT, dx * left)
    y_n = _solve(
        dx, start, weights, k_n, k_t, left, ridge_n, least, bound + here, steps, i, end, ks,
        H, K, METHOD, DT,
    )  # fmt: skip
    store_rows(y + here * K, i, end, H * K, ks, K, y_n)
    if RIDGE:
        x_n = load_rows(x + here * K, i, end, H * K, ks, K)
        store_rows(dridge + here * K, i, end, H * K, ks, K, tl.where(ridge_n <= least, 0.0, -y_n * x_n))
