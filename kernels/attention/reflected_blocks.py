"""Blocks of reflections by themselves, for PaTH attention, arXiv:2505.16381.

With H_t = I - beta_t w_t w_t^T, in a block of C tokens

    T  = (I + stril(D W W^T))^-1 D,  D = diag(beta)
    scores within the block   tril(Q K^T) - tril(Q W^T) T stril(W K^T)
    queries at its start      Q - tril(Q W^T) T W
    keys at its end           K - (T stril(W K^T))^T W
    all its reflections       H_C ... H_1 = I - P with P = W^T T W
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention.calls import heads_first
from linbench.kernels.operators import without_autocast

CHUNK = 64
"""Tokens of a block. Chosen: with heads of as many channels a block's transition costs what its scores do."""


class Local(NamedTuple):
    """Blocks by themselves.

    scores [B, H, N, C, C], queries at a block's start and keys at its end [B, H, N, C, K], and P [B, H, N, K,
    K]; without queries neither scores nor queries.
    """

    scores: Tensor | None
    queries: Tensor | None
    keys: Tensor
    transition: Tensor


def blocked(x: Tensor) -> Tensor:
    """Cut x [B, H, T, D] into blocks [B, H, N, C, D], with zeros at the end; C is `CHUNK`, or T if less."""
    chunk = min(CHUNK, x.shape[2])
    x = F.pad(x, (0, 0, 0, -x.shape[2] % chunk))
    return x.reshape(*x.shape[:2], x.shape[2] // chunk, chunk, x.shape[3])


def local_blocks(q: Tensor | None, k: Tensor, w: Tensor, beta: Tensor) -> Local:
    """Work out all blocks at once, of q, k and w [B, H, N, C, K] and beta [B, H, N, C, 1]."""
    rows = beta * w
    crossed = (rows @ k.mT).tril(-1)
    solved = torch.linalg.solve_triangular(
        (rows @ w.mT).tril(-1), torch.cat([rows, crossed], dim=-1), upper=False, unitriangular=True
    )
    weights, crossed = solved.split([w.shape[-1], k.shape[-2]], dim=-1)
    scores = queries = None
    if q is not None:
        read = (q @ w.mT).tril()
        scores, queries = (q @ k.mT).tril() - read @ crossed, q - read @ weights
    return Local(scores, queries, k - crossed.mT @ w, w.mT @ weights)


def carried(k: Tensor, w: Tensor, beta: Tensor, cached: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Return keys as the last token sees them, H_T ... H_{j+1} k_j, and those of a cache before them.

    Args:
        k, w: [B, T, H, K].
        beta: [B, T, H].
        cached: [B, H, S, K], keys that are carried to the token before these, or None. Empty places hold
            zeros.

    Returns: [B, T, H, K] in at least float32, and [B, H, S, K] in the dtype of `cached`.

    Raises ValueError: shapes do not fit together.
    """
    require_reflections(w, beta, tuple(k.shape))
    with without_autocast(k):
        k, w, beta = (heads_first(x) for x in (k, w, beta[..., None]))
        if k.shape[2] == 1:  # of one token only the cache is reflected
            if cached is not None:
                cached = torch.addcmul(cached, cached @ w.mT.to(cached.dtype), (-beta * w).to(cached.dtype))
            return k.transpose(1, 2), cached
        length = k.shape[2]
        local = local_blocks(None, blocked(k), blocked(w), blocked(beta))
        later = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device).expand(*k.shape[:2], -1, -1)
        at_end = []
        for block in reversed(range(local.keys.shape[2])):
            at_end.append(local.keys[:, :, block] @ later.mT)
            later = later - later @ local.transition[:, :, block]
        if cached is not None:
            cached = cached @ later.mT.to(cached.dtype)
        return torch.cat(at_end[::-1], dim=2)[:, :, :length].transpose(1, 2), cached


def require_reflections(w: Tensor, beta: Tensor, shape: tuple[int, ...]) -> None:
    """Require that directions have a shape, and strengths theirs without the last dimension.

    Raises ValueError: they do not.
    """
    if tuple(w.shape) != shape or beta.shape != w.shape[:3]:
        raise ValueError(
            f"w is {shape}, as the tokens' keys are, and beta {shape[:3]}, not {tuple(w.shape)} and"
            f" {tuple(beta.shape)}"
        )
