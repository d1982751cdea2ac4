"""Weights of keys: the softmax of their scores, or what takes its place."""

from typing import Literal

import torch
from torch import Tensor

from linbench.kernels.dtypes import to_float32

Weigh = Literal["softmax", "squared_relu"]


def squared_relu(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """Return o_i = sum_j relu(scale q_i . k_j + b_ij)^2 v_j / n_i, over the n_i keys that i sees.

    arXiv:2202.10447, which divides by the length of the sequence.

    Args:
        q: [B, T, H, K].
        k, v: [B, S, Hk, K] and [B, S, Hk, V]; Hk divides H.
        seen: mask [B, 1, T, S] of the keys that each query sees.
        bias: [B, H, T, S], added to scores; None is zero.
        scale: factor on the products.

    Returns: [B, T, H, V] in the dtype of v.
    """
    groups = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(groups, dim=2) if groups > 1 else x for x in (k, v))
    scores = to_float32(torch.einsum("bthk,bshk->bhts", scale * q, k))
    scores = (scores if bias is None else scores + bias).masked_fill(~seen, 0.0)
    weights = scores.relu().square() / seen.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.einsum("bhts,bshv->bthv", weights.to(v.dtype), v).to(v.dtype)
