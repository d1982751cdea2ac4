"""Softmax attention through torch's scaled_dot_product_attention, which picks a fused kernel where it has one."""

from contextlib import nullcontext

import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from linbench.kernels.attention.positions import EMPTY, positions_from_zero, visible
from linbench.kernels.operators import transformed


def dense(
    q: Tensor, k: Tensor, v: Tensor, query_positions: Tensor | None, key_positions: Tensor | None, window: int | None, slopes: Tensor | None, scale: float
) -> Tensor:
    """Arguments as in `attention`, heads already equal in number."""
    plain = key_positions is None and window is None and slopes is None
    mask = None
    if not plain:
        if query_positions is None or key_positions is None:
            query_positions, key_positions = positions_from_zero(q), positions_from_zero(k)
        else:
            # a weight of zero does not silence a NaN, so what an empty place holds must go
            empty = (key_positions == EMPTY)[:, :, None, None]
            k, v = k.masked_fill(empty, 0.0), v.masked_fill(empty, 0.0)
        mask = visible(query_positions, key_positions, window)[:, None]  # [B, 1, T, S]
        if slopes is not None:
            distance = (query_positions[:, None, :, None] - key_positions[:, None, None, :]).to(q.dtype)
            mask = (-slopes[:, None, None].to(q.dtype) * distance).masked_fill(~mask, float("-inf"))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    # the CPU's own kernel has no rule for torch.vmap
    with sdpa_kernel(SDPBackend.MATH) if transformed() and not q.is_cuda else nullcontext():
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=plain, scale=scale).transpose(1, 2)
