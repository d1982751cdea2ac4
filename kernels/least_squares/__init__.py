"""Layers that read the best linear map from keys to values: least squares over all tokens so far."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from linbench.kernels.least_squares.chunkwise import chunkwise
from linbench.kernels.least_squares.norm import frobenius
from linbench.kernels.least_squares.problem import Gradient, Method, Problem, check
from linbench.kernels.least_squares.reference import reference
from linbench.kernels.operators import choose_backend, require_heads, without_autocast

__all__ = ["VERSION", "Memory", "flops_per_token", "gram_norm", "least_squares"]

VERSION = 1
"""Version, raised whenever a change here changes results by more than rounding.

It is part of the identity of every cell that uses this family.
"""


def _triton(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    from linbench.kernels.least_squares.triton import triton_least_squares  # not everywhere, slow to import

    return triton_least_squares(problem)


_BACKENDS: dict[str, Callable[[Problem], tuple[Tensor, Tensor, Tensor]]] = {
    "reference": reference,
    "chunkwise": chunkwise,
}
_TRITON: dict[str, Callable[[Problem], tuple[Tensor, Tensor, Tensor]]] = {"triton": _triton}

_WIDEST = 128
"""Largest dimension of keys that the Triton kernels take: wider ones do not fit on the chip."""


class Memory(NamedTuple):
    """State of least squares, in at least float32.

    gram: decayed sum of b k k^T [B, H, K, K], symmetric. cross: decayed sum of b k v^T [B, H, K, V].
    """

    gram: Tensor
    cross: Tensor


def least_squares(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = None,
    strength: Tensor | None = None,
    ridge: Tensor | float,
    steps: int = 30,
    method: Method = "cg",
    gradient: Gradient = "implicit",
    state: tuple[Tensor, Tensor] | None = None,
    backend: Literal["auto", "reference", "chunkwise", "triton"] = "auto",
) -> tuple[Tensor, Memory]:
    """Return o_t = S_t^T q_t with S_t = argmin of a sum of squares over all tokens so far.

        S_t = argmin_S  sum_{i <= t} a_{i+1} ... a_t b_i |S^T k_i - v_i|^2 + tr(S^T diag(ridge) S)
            = (G_t + diag(ridge))^-1 C_t
        G_t = a_t G_{t-1} + b_t k_t k_t^T,   C_t = a_t C_{t-1} + b_t k_t v_t^T

    2309.05858 without a decay, 2506.05233 with one. What is solved is (G_t + diag(ridge)) x_t = q_t for every
    token; the output is then C_t^T x_t, linear attention with the query x_t.

    Where keys do not fill the space, or are zero, G_t is singular. The ridge counts as at least r (1 + tr
    G_t), with r = 1e-6, in float64 1e-12: so every system is regular, its condition bounded by 1 / r, and
    directions in which no key has pointed are read as nearly zero. That bound has no gradient.

    Args:
        q, k: [B, T, Hk, K]; Hk divides H, key head h serves the value heads h*H/Hk ... (h+1)*H/Hk - 1.
        v: [B, T, H, V].
        log_decay: log a <= 0, broadcastable to [B, T, H]; None is no decay. The ridge does not decay.
        strength: b >= 0, broadcastable to [B, T, H]; None is 1.
        ridge: >= 0, a number or broadcastable to [B, T, H, K].
        steps: products with G_t that an iteration takes.
        method: "cg", conjugate gradients from zero: a token stops where its residual has fallen to rounding
            or its curvature is not positive. "chebyshev", an iteration whose steps are fixed beforehand by
            bounds of the spectrum, the least ridge and the largest plus the Frobenius norm of G_t
            (2511.21016). "exact", by Cholesky in float64, at the price of K^2 numbers per token of a chunk.
        gradient: "implicit", of the solution, by solving once more with the same method and steps; exact as
            far as these have converged. "unrolled", through the iteration itself, whose memory grows with
            `steps`.
        state: G [B, H, K, K], symmetric, and C [B, H, K, V] to start from; None is zero.
        backend: "auto", "chunkwise" or "reference"; for methods other than "exact", the implicit gradient and
            keys of at most 128 also "triton" on a GPU, which solves all systems of a chunk in one program. It
            rounds no input; its products have 22 bits, or 16 where q, k and v are bfloat16.

    Returns: o [B, T, H, V] in the dtype of v, and the final state.

    Raises ValueError: shapes that do not fit together, or a name that is not there.
    """
    require_heads(q=q, k=k, v=v)
    has_kernel = method != "exact" and gradient == "implicit" and k.shape[-1] <= _WIDEST
    backends = _BACKENDS | _TRITON if has_kernel else _BACKENDS
    took = choose_backend(backend, backends, v, otherwise="chunkwise")
    with without_autocast(v):
        problem = check(q, k, v, log_decay, strength, ridge, state, steps, method, gradient)
        o, gram, cross = backends[took](problem)
    return o.to(v.dtype), Memory(gram, cross)


def gram_norm(
    k: Tensor, *, log_decay: Tensor | None = None, strength: Tensor, gram: Tensor | None = None
) -> Tensor:
    """Return the Frobenius norm of the Gram matrix of each token [B, T, H], in at least float32.

    Args:
        k: [B, T, Hk, K]; Hk divides H.
        log_decay, strength: [B, T, H], as `least_squares` takes them.
        gram: [B, H, K, K] to start from; None is zero.
    """
    with without_autocast(k):
        return frobenius(k, log_decay, strength.to(torch.promote_types(k.dtype, strength.dtype)), gram)


def flops_per_token(
    *, heads: int, key_dim: int, value_dim: int, steps: int, method: Method, decay: bool
) -> float:
    """Return the floating-point operations of least squares, forward, per token.

    A multiply-add counts as two. G and C are written, C is read, and both decay. A step is a product with G,
    2 K^2, and some of vectors. An exact solution is recursive least squares without a decay, in which P and S
    are read and written; with one it counts as a factorisation, 2/3 K^3, and two substitutions.
    """
    memory = (2 + decay) * key_dim * (key_dim + value_dim) + 2 * key_dim * value_dim
    if method == "exact":
        recursion, factors = 4 * key_dim * (key_dim + value_dim), 2 / 3 * key_dim**3 + 2 * key_dim**2
        return heads * (memory + (factors if decay else recursion))
    vectors = {"cg": 14, "chebyshev": 9}[method] * key_dim
    return heads * (memory + steps * (2 * key_dim**2 + vectors))
