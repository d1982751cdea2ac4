"""The systems of least squares on a GPU: a launch for Gram matrices at chunk starts, another for all steps.

An iteration needs products with G_t alone, as in the torch form, `linbench.kernels.least_squares.chunkwise`:

    G_t p_t = e^{c_t} G p_t + sum over j <= t of b_j e^{c_t - c_j} (k_j . p_t) k_j

A program of `_solve` has one chunk of one head. It loads the chunk's keys and the Gram matrix G before it
once. These, and the vectors of all tokens of the chunk, stay on the chip for all steps, each of which is
three products of matrices. No chunk waits for another: `_sum_grams` has stored G for each.

Vectors, Gram matrices and sums are float32. Products of them have 22 bits; beside bfloat16 keys, which count
exactly, they have 16.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.decay import decay_to_base_2
from linbench.kernels.matrix_state.triton.launch import TYPES, power_of_two
from linbench.kernels.matrix_state.triton.tiles import extended_dot, load_rows, load_transposed, store_rows
from linbench.kernels.operators import fold_replicas, operator

CHUNK = 64
"""Most tokens of a chunk: those of a product that four warps take at once. Chosen, not measured."""

COLUMNS = 32
"""Most columns of a Gram matrix that a program sums: chosen, not measured."""


@triton.jit
def _sums(log_decay, i, end, H: tl.constexpr):
    """Return log decays to base 2 summed over the tokens of a chunk up to each, i [C], in float64.

    In float32 a token that resets the memory would hide the decays of those that follow. The chunk has `end`
    tokens or more.
    """
    g = decay_to_base_2(tl.load(log_decay + i * H, mask=i < end, other=0.0))
    return tl.cumsum(g.to(tl.float64), axis=0)


@triton.jit
def _sum_grams(
    k, log_decay, strength, gram, starts, T,
    H: tl.constexpr, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Store what every chunk starts from: starts [B, H, N, K, K], of gram [B, H, K, K].

    Grid (blocks of columns of every B H). k [B, T, H, K], log_decay and strength [B, T, H].
    """
    block, bh = place_in_grid(tl.cdiv(K, BV))
    here = bh // H * T * H + bh % H  # of the chunk's first token and the head among all
    i, ks, columns = tl.arange(0, C), tl.arange(0, BK), block * BV + tl.arange(0, BV)
    gram_n = load_rows(gram + bh * K * K, ks, K, K, columns, K)
    for n in range(0, tl.cdiv(T, C)):
        store_rows(starts + (bh * tl.cdiv(T, C) + n) * K * K, ks, K, K, columns, K, gram_n)
        end = T - n * C
        sums = _sums(log_decay + here, i, end, H)
        total = tl.min(sums, axis=0)  # the last, since no log decay is positive
        left = tl.exp2((total - sums).to(tl.float32))
        weight = left * tl.load(strength + here + i * H, mask=i < end, other=0.0)
        written = load_rows(k + here * K, i, end, H * K, columns, K).to(tl.float32) * weight[:, None]
        k_t = load_transposed(k + here * K, i, end, H * K, ks, K)
        gram_n = extended_dot(k_t, written, DT, gram_n * tl.exp2(total.to(tl.float32)))
        here += C * H


@triton.jit
def _times(p, start, weights, k, k_t, left, ridge, DT: tl.constexpr):
    """Return (G_t + diag(ridge_t)) p_t [C, K]."""
    own = extended_dot(extended_dot(p, k_t, DT) * weights, k, DT)
    return extended_dot(p * left, start, DT, own) + p * ridge


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

    A chunk whose tokens are all done takes no more steps.
    """
    ROUNDING: tl.constexpr = 1.4210854715202004e-14 if DT == tl.float32 else 5.820766091346741e-11
    x, r, p = tl.zeros_like(b), b, b
    rr = _dot_rows(r, r)
    rounding = ROUNDING * rr
    taken = 0
    while (tl.sum((rr > rounding).to(tl.int32)) > 0) & (taken < steps):
        taken += 1
        Ap = _times(p, start, weights, k, k_t, left, ridge, DT)
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
    """Return x [C, K] as above; `lowest` and `highest` [C, 1] are bounds of the spectrum."""
    size, ratio = 2.0 / (highest + lowest), (highest - lowest) / (highest + lowest)
    x, before, weight = size * b, tl.zeros_like(b), tl.zeros_like(size) + 2.0
    for _ in range(0, steps):
        weight = 1.0 / (1.0 - ratio * ratio * weight / 4.0)
        Ax = _times(x, start, weights, k, k_t, left, ridge, DT)
        after = weight * (x - size * (Ax - b)) + (1.0 - weight) * before
        before = x
        x = after
    return x


@triton.jit(do_not_specialize=["steps"])
def _solve(
    b, k, log_decay, strength, ridge, bound, starts, x, T, steps,
    H: tl.constexpr, K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr,
    METHOD: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute x [B, T, H, K] with (G_t + diag(ridge_t)) x_t = b_t.

    Grid (chunks of every B H). b, k, ridge [B, T, H, K], log_decay, strength, bound [B, T, H], starts [B, H,
    N, K, K]. b is brought to length one before, since its square may be too small to tell from zero.
    """
    n, bh = place_in_grid(tl.cdiv(T, C))
    here, end = (bh // H * T + n * C) * H + bh % H, T - n * C
    i, ks = tl.arange(0, C), tl.arange(0, BK)
    sums = _sums(log_decay + here, i, end, H)
    between = (sums[:, None] - sums[None, :]).to(tl.float32)
    weights = tl.exp2(tl.where(i[:, None] >= i[None, :], between, float("-inf")))
    weights *= tl.load(strength + here + i * H, mask=i < end, other=0.0)[None, :]
    left = tl.exp2(sums.to(tl.float32))[:, None]
    start = load_rows(starts + (bh * tl.cdiv(T, C) + n) * K * K, ks, K, K, ks, K)
    k_n = load_rows(k + here * K, i, end, H * K, ks, K)
    k_t = load_transposed(k + here * K, i, end, H * K, ks, K)
    ridge_n = load_rows(ridge + here * K, i, end, H * K, ks, K)
    b_n = load_rows(b + here * K, i, end, H * K, ks, K)
    size = tl.max(tl.abs(b_n), axis=1)[:, None]
    size = tl.where(size > 0, size, 1.0)
    if METHOD == "cg":
        x_n = _conjugate_gradient(b_n / size, start, weights, k_n, k_t, left, ridge_n, steps, DT)
    else:
        lowest = tl.min(tl.where(ks[None, :] < K, ridge_n, float("inf")), axis=1)
        highest = tl.max(ridge_n, axis=1) + tl.load(bound + here + i * H, mask=i < end, other=0.0)
        lowest, highest = tl.where(i < end, lowest, 1.0), tl.where(i < end, highest, 1.0)
        bounds = lowest[:, None], highest[:, None]
        x_n = _chebyshev(b_n / size, start, weights, k_n, k_t, left, ridge_n, *bounds, steps, DT)
    store_rows(x + here * K, i, end, H * K, ks, K, x_n * size)


@operator("least_squares_solve", differentiable=False)
def solve(
    b: Tensor,
    k: Tensor,
    log_decay: Tensor,
    strength: Tensor,
    ridge: Tensor,
    gram: Tensor,
    bound: Tensor,
    steps: int,
    method: str,
) -> Tensor:
    """Return x [B, T, H, K] with (G_t + diag(ridge_t)) x_t = b_t, as closely as the method comes.

    Args:
        k: [B, T, H, K] in bfloat16 or in float32, as all others.
        method: "cg" or "chebyshev".
    """
    k = k.contiguous() if k.dtype == torch.bfloat16 else k.float().contiguous()
    b, log_decay, strength, ridge, gram, bound = (
        each.contiguous() for each in (b, log_decay, strength, ridge, gram, bound)
    )
    batch, length, heads, key_dim = b.shape
    width = power_of_two(key_dim)
    chunk, warps = launch(length, width, k.dtype)
    count, columns = -(-length // chunk), min(COLUMNS, width)
    x, starts = torch.empty_like(b), b.new_empty(batch, heads, count, key_dim, key_dim)
    sizes = {"H": heads, "K": key_dim, "C": chunk, "BK": width, "DT": TYPES[k.dtype]}
    sizes |= {"num_warps": warps, "num_stages": 1}
    _sum_grams[(batch * heads * -(-key_dim // columns),)](
        k, log_decay, strength, gram, starts, length, BV=columns, **sizes
    )
    _solve[(batch * heads * count,)](
        b, k, log_decay, strength, ridge, bound, starts, x, length, steps, METHOD=method, **sizes
    )
    return x


def launch(length: int, width: int, dtype: torch.dtype) -> tuple[int, int]:
    """Return the tokens of a chunk, a power of two, and the warps of a program.

    They are what an H100 has registers and shared memory for: of float32, which is split in two parts for its
    products, half as many tokens, and of keys above 64 half as many for twice as many warps.
    """
    wide = width > 64
    most = CHUNK // (1 + wide) // (2 if dtype == torch.float32 else 1)
    return min(most, power_of_two(length)), 8 if wide else 4


@solve.register_fake
def _(
    b: Tensor,
    k: Tensor,
    log_decay: Tensor,
    strength: Tensor,
    ridge: Tensor,
    gram: Tensor,
    bound: Tensor,
    steps: int,
    method: str,
) -> Tensor:
    return b.new_empty(b.shape)


fold_replicas(solve)
