"""Softmax attention through torch's scaled_dot_product_attention, which has fused kernels for some calls."""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention.positions import positions_from_zero, visible
from linbench.kernels.operators import call_folded


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    window: int | None,
    slopes: Tensor | None,
    kept: tuple[Tensor, Tensor] | None,
    scale: float,
) -> Tensor:
    """Return attention; arguments are those of `attention`, with as many heads of keys as of queries.

    Places without a key hold zeros.
    """
    plain = key_positions is None and window is None and slopes is None and kept is None
    mask = None
    if not plain:
        if query_positions is None or key_positions is None:
            query_positions, key_positions = positions_from_zero(q), positions_from_zero(k)
        mask = seen = visible(query_positions, key_positions, window)[:, None]  # [B, 1, T, S]
        if slopes is not None:
            distance = (query_positions[:, None, :, None] - key_positions[:, None, None, :]).to(q.dtype)
            mask = (-slopes[:, None, None].to(q.dtype) * distance).masked_fill(~seen, float("-inf"))
        if kept is not None:
            left = differences(*kept, q.dtype).masked_fill(~seen, float("-inf"))
            mask = left if slopes is None else left + mask
        mask = mask.expand(len(q), -1, -1, -1)
    # torch's own rule of torch.vmap was seen to lay results out so that backward refuses them or reads beside
    # them (CUDA, torch 2.11), and there is none for the CPU's kernel
    o: Tensor = call_folded(_attend, q, k, v, mask, plain, scale)
    return o


def differences(c_q: Tensor, c_k: Tensor, dtype: torch.dtype) -> Tensor:
    """Return c_q [B, T, H] less c_k [B, S, H] as [B, H, T, S] in `dtype`.

    The result is as exact as in their own dtype, which would need more memory.
    """
    near_q, near_k = c_q.to(dtype), c_k.to(dtype)
    near = near_q.mT[..., :, None] - near_k.mT[..., None, :]
    if c_q.dtype == dtype:
        return near
    lost_q, lost_k = (c_q - near_q).detach().to(dtype), (c_k - near_k).detach().to(dtype)
    return near + (lost_q.mT[..., :, None] - lost_k.mT[..., None, :])


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale).transpose(
        1, 2
    )
