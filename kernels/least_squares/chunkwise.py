"""Least squares for all tokens at once, without the Gram matrix of any one token.

An iteration needs products with G_t alone. Those of all tokens are masked linear attention inside of chunks,
plus the Gram matrix that a chunk starts from:

    G_t x_t = e^{c_t} G x_t + sum over j <= t of b_j e^{c_t - c_j} (k_j . x_t) k_j

c sums log decays from the chunk's start. The gradient of the solution x_t = (G_t + R_t)^-1 q_t is that of one
more step from it, x_t + A_t^-1 (q_t - A_t x_t) with A_t = G_t + R_t, in which A_t^-1 is taken as known: the
same iteration solves for y_t = A_t^-1 dx_t, and products that `matrix_state` differentiates do the rest.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.decays import bounded
from linbench.kernels.least_squares.norm import frobenius
from linbench.kernels.least_squares.problem import Problem
from linbench.kernels.least_squares.solvers import chebyshev, conjugate_gradient
from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.operators import apply_function, call_undifferentiated, vmap_rule, without_autocast

CHUNK = 32
"""Tokens of a chunk. Chosen, not measured."""


def chunkwise(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Return o [B, T, H, V] and the final Gram and cross matrices."""
    q, k, v, log_decay, strength, ridge, gram, cross, steps, method, gradient, *_ = problem.widened()
    decay = torch.zeros_like(strength) if log_decay is None else log_decay
    unrolled = gradient == "unrolled" and method != "exact"
    bound = torch.zeros_like(strength)
    if method == "chebyshev":
        with torch.set_grad_enabled(unrolled and torch.is_grad_enabled()):
            bound = frobenius(k, log_decay, strength, gram)
    system = k, decay, strength, ridge, gram, bound
    if unrolled:
        x = solve(q, *system, steps, method)
    else:
        known = [each.detach() for each in system]
        x = call_undifferentiated(solve, q.detach(), *known, steps, method)
    weight = strength[..., None]
    fitted, gram = matrix_state(x.detach(), k, weight * k, log_decay=log_decay, scale=1.0, state=gram)
    if not unrolled and torch.is_grad_enabled():
        residual = q - fitted - ridge * x.detach()
        x = apply_function(Implicit, residual, x.detach(), *known, steps, method)
    o, cross = matrix_state(x, k, weight * v, log_decay=log_decay, scale=1.0, state=cross)
    return o, gram, cross


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

    b is brought to length one before, since its square may be too small to tell from zero.
    """
    size = b.detach().abs().amax(dim=-1, keepdim=True)
    size = torch.where(size > 0, size, 1.0)
    length, heads = b.shape[1:3]
    chunk = min(CHUNK, length)
    rhs, k, ridge = (_split(x, chunk) for x in (b / size, k, ridge))
    log_decay, strength, bound = (_split(x[..., None], chunk) for x in (log_decay, strength, bound))
    ridge = ridge + (ridge == 0)  # of the places after the last token
    grams = Grams(k, log_decay, strength, gram.flatten(0, 1))

    def product(x: Tensor) -> Tensor:
        return grams.times(x) + ridge * x

    if method == "exact":
        x = grams.solve(rhs, ridge)
    elif method == "cg":
        x = conjugate_gradient(product, rhs, steps)
    else:
        lowest, highest = ridge.aminmax(dim=-1, keepdim=True)
        x = chebyshev(product, rhs, lowest, highest + bound, steps)
    x = x.reshape(-1, heads, x.shape[1] * chunk, x.shape[-1])[:, :, :length]
    return x.transpose(1, 2) * size


def _split(x: Tensor, chunk: int) -> Tensor:
    """Cut [B, T, H, D] into [B H, N, C, D], with zeros at the end."""
    x = F.pad(x.transpose(1, 2), (0, 0, 0, -x.shape[1] % chunk))
    return x.reshape(-1, x.shape[2] // chunk, chunk, x.shape[-1])


class Grams:
    """The Gram matrices of all tokens, by chunk.

    Args:
        k: [M, N, C, K], as log_decay and strength [M, N, C, 1].
        gram: [M, K, K] to start from.
    """

    def __init__(self, k: Tensor, log_decay: Tensor, strength: Tensor, gram: Tensor) -> None:
        sums = bounded(log_decay).double().cumsum(dim=-2)  # in float32 a reset would hide what follows
        seen = torch.ones(k.shape[2], k.shape[2], dtype=torch.bool, device=k.device).tril()
        between = (sums - sums.mT).masked_fill(~seen, -torch.inf).exp().to(k.dtype)
        self.k, self.weights = k, between * strength.mT
        self.left = sums.exp().to(k.dtype)
        writes = (k * self.weights[:, :, -1, :, None]).mT @ k
        starts = []
        for left, write in zip(self.left[:, :, -1:].unbind(1), writes.unbind(1), strict=True):
            starts.append(gram)
            gram = left * gram + write
        self.starts = torch.stack(starts, dim=1)

    def times(self, x: Tensor) -> Tensor:
        """Return G_t x_t for x [M, N, C, K]."""
        return self.left * (x @ self.starts) + ((x @ self.k.mT) * self.weights) @ self.k

    def solve(self, b: Tensor, ridge: Tensor) -> Tensor:
        """Return (G_t + diag(ridge_t))^-1 b_t [M, N, C, K] by Cholesky in float64, chunk by chunk."""
        chunks = []
        for i, k in enumerate(self.k.double().unbind(1)):
            outer = k[..., :, None] * k[..., None, :]
            grams = torch.einsum("mtj,mjkl->mtkl", self.weights[:, i].double(), outer)
            start = self.left[:, i, :, :, None].double() * self.starts[:, i, None].double()
            factor, _ = torch.linalg.cholesky_ex(grams + start + torch.diag_embed(ridge[:, i].double()))
            chunks.append(torch.cholesky_solve(b[:, i, :, :, None].double(), factor)[..., 0])
        return torch.stack(chunks, dim=1).to(b.dtype)


class Implicit(torch.autograd.Function):
    """A solution x with the gradient of x + A^-1 residual, in which A is known and the residual near zero."""

    @staticmethod
    def forward(residual: Tensor, x: Tensor, *system: Any) -> Tensor:
        """Return a copy of x."""
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the system."""
        _, _, *system, ctx.steps, ctx.method = inputs
        ctx.save_for_backward(*system)

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> Any:
        """Return A^-1 dx, the gradient of the residual."""
        with without_autocast(dx):
            y = call_undifferentiated(solve, dx, *ctx.saved_tensors, ctx.steps, ctx.method)
        return y, *[None] * 9

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """Take replicas as more sequences."""
        return vmap_rule(Implicit.apply, info, in_dims, *args)
