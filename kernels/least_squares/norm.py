"""Sums over the Gram matrix of every token, without the matrix."""

import torch
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.scan import scan


def frobenius(k: Tensor, log_decay: Tensor | None, strength: Tensor, gram: Tensor | None) -> Tensor:
    """Return the Frobenius norm of each Gram matrix [B, T, H], which no eigenvalue exceeds.

        |G_t|^2 = a_t^2 |G_{t-1}|^2 + 2 b_t k_t . G_t k_t - b_t^2 |k_t|^4

    Its gradient is zero where it is zero.

    Args:
        k: [B, T, Hk, K]; Hk divides H.
        log_decay: [B, T, H]; None is no decay.
        strength: b [B, T, H], whose dtype the norm has.
        gram: [B, H, K, K] to start from; None is zero.
    """
    k = for_heads(k.to(strength.dtype), strength.shape[2])
    recalled, _ = matrix_state(k, k, strength[..., None] * k, log_decay=log_decay, scale=1.0, state=gram)
    own = strength * k.square().sum(dim=-1)
    added = (2 * strength * (recalled * k).sum(dim=-1) - own**2).clamp(min=0)
    start = None if gram is None else gram.square().sum(dim=(-2, -1))
    square = decayed_sum(added, log_decay, start, times=2)
    there = square > 0
    return torch.where(there, torch.where(there, square, 1.0).sqrt(), 0.0)


def trace(k: Tensor, log_decay: Tensor | None, strength: Tensor, gram: Tensor) -> Tensor:
    """Return the trace of each Gram matrix [B, T, H], of arguments as `frobenius` has them."""
    start = gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return decayed_sum(strength * k.square().sum(dim=-1), log_decay, start, times=1)


def for_heads(keys: Tensor, heads: int) -> Tensor:
    """Return keys [B, T, Hk, K] for each head of values [B, T, H, K]."""
    return keys if keys.shape[2] == heads else keys.repeat_interleave(heads // keys.shape[2], dim=2)


def decayed_sum(x: Tensor, log_decay: Tensor | None, start: Tensor | None, *, times: int) -> Tensor:
    """Return y_t = a_t^times y_{t-1} + x_t [B, T, H] of x [B, T, H], from `start` [B, H]."""
    decay = torch.ones_like(x) if log_decay is None else torch.exp(times * log_decay)
    return scan(decay, x, start)[0]
