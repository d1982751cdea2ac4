"""Least squares token by token, to be read beside the papers. Faster forms are tested against it.

Mesa layer 2309.05858 and recursive least squares, MesaNet 2506.05233, Gated KalmaNet 2511.21016.
"""

import torch
from torch import Tensor

from linbench.kernels.least_squares.problem import Problem
from linbench.kernels.least_squares.solvers import chebyshev, conjugate_gradient


def reference(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Return o [B, T, H, V] and the final Gram and cross matrices.

    The exact solution is recursive least squares where that exists: without a decay, and with one ridge.
    """
    problem = problem.widened()
    q, k, v, log_decay, strength, ridge, gram, cross, _, method, *_ = problem
    recursive = method == "exact" and log_decay is None and problem.constant
    outputs = recursive_least_squares(problem) if recursive else []
    for t in range(q.shape[1]):
        if log_decay is not None:
            decay = log_decay[:, t].exp()[..., None, None]
            gram, cross = decay * gram, decay * cross
        written = strength[:, t, :, None] * k[:, t]
        gram, cross = gram + _outer(written, k[:, t]), cross + _outer(written, v[:, t])
        if not recursive:
            x = _solve(problem, gram, ridge[:, t], q[:, t])
            outputs.append(_read(cross, x))
    return torch.stack(outputs, dim=1), gram, cross


def recursive_least_squares(problem: Problem) -> list[Tensor]:
    """Return the outputs o_t of the recursion for P = (G + diag(ridge))^-1 and S = P C, by Sherman-Morrison.

    g_t = b_t P_{t-1} k_t / (1 + b_t k_t . P_{t-1} k_t) is what a token's error is written under. It loses
    digits with P, so it runs in float64.
    """
    wide = (problem.q, problem.k, problem.v, problem.strength, problem.ridge, problem.gram, problem.cross)
    q, k, v, strength, ridge, gram, cross = (x.double() for x in wide)
    A = gram + torch.diag_embed(ridge[:, 0])
    P, S, outputs = torch.linalg.inv(A), torch.linalg.solve(A, cross), []
    for t in range(q.shape[1]):
        key, b = k[:, t], strength[:, t, :, None]
        Pk = _read(P, key)
        gain = b * Pk / (1 + b * (key * Pk).sum(dim=-1, keepdim=True))
        S = S + _outer(gain, v[:, t] - _read(S, key))
        P = P - _outer(gain, Pk)
        outputs.append(_read(S, q[:, t]).to(problem.v.dtype))
    return outputs


def _solve(problem: Problem, gram: Tensor, ridge: Tensor, q: Tensor) -> Tensor:
    """Return (G + diag(ridge))^-1 q of G [B, H, K, K], ridge and q [B, H, K], by the problem's method."""
    if problem.method == "exact":
        A = (gram + torch.diag_embed(ridge)).double()
        x: Tensor = torch.linalg.solve(A, q.double()[..., None])
        return x.squeeze(-1).to(q.dtype)

    def product(x: Tensor) -> Tensor:
        return _read(gram, x) + ridge * x

    if problem.method == "cg":
        return conjugate_gradient(product, q, problem.steps)
    largest = torch.linalg.matrix_norm(gram)[..., None]
    lowest, highest = ridge.aminmax(dim=-1, keepdim=True)
    return chebyshev(product, q, lowest, highest + largest, problem.steps)


def _read(state: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("bhkv,bhk->bhv", state, key)


def _outer(key: Tensor, value: Tensor) -> Tensor:
    return torch.einsum("bhk,bhv->bhkv", key, value)
