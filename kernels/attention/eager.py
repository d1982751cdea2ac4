"""Softmax attention through torch's scaled_dot_product_attention, which has fused kernels for some calls."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention.positions import EMPTY, positions_from_zero, visible
from linbench.kernels.attention.weights import Weigh, squared_relu
from linbench.kernels.operators import call_folded, is_traced


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
    weigh: Weigh,
) -> Tensor:
    """Return attention; arguments are those of `attention`. Places without a key hold zeros."""
    biased = slopes is not None or kept is not None
    plain = key_positions is None and window is None and not biased and weigh == "softmax"
    mask, decides_here = None, not (k.is_cuda or is_traced())  # where looking at positions costs no wait
    if key_positions is not None and decides_here:
        used = _used_places(key_positions)
        k, v, key_positions = k[:, :used], v[:, :used], key_positions[:, :used]
        kept = None if kept is None else (kept[0], kept[1][:, :used])
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
        if not biased and weigh == "softmax" and decides_here and bool(seen.all()):
            return unmasked(q, k, v, scale)  # which is faster
    if weigh == "squared_relu" and mask is not None:
        return squared_relu(q, k, v, seen, mask if biased else None, scale)
    # torch's own rule of torch.vmap was seen to lay results out so that backward refuses them or reads beside
    # them (CUDA, torch 2.11), and there is none for the CPU's kernel
    attend = partial(call_folded, _attend)
    groups = q.shape[2] // k.shape[2]
    if groups > 1 and key_positions is not None and mask is not None:
        rows, mask = _as_rows(q, groups), _mask_of_rows(mask, groups)
        return _apart(attend(rows, k, v, mask, plain, scale), groups)
    if groups > 1:  # beside all queries a copy is small
        k, v = k.repeat_interleave(groups, dim=2), v.repeat_interleave(groups, dim=2)
    o: Tensor = attend(q, k, v, mask, plain, scale)
    return o


def unmasked(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Return attention from q [B, T, H, K] to all of k and v [B, S, Hk, K or V], [B, T, H, V]."""
    groups = q.shape[2] // k.shape[2]
    if groups == 1:
        return _attend(q, k, v, None, False, scale)
    return _apart(_attend(_as_rows(q, groups), k, v, None, False, scale), groups)


def _used_places(key_positions: Tensor) -> int:
    """Return how many of the first places [B, S] hold all keys of all sequences, at least one."""
    holding = (key_positions != EMPTY).any(dim=0).nonzero()
    return int(holding[-1]) + 1 if len(holding) else 1


def _as_rows(q: Tensor, groups: int) -> Tensor:
    """Return queries that share keys as more tokens of one head, so that a cache is read where it lies.

    Args:
        q: [B, T, Hk groups, K].
        groups: number of heads of queries to a head of keys.

    Returns: [B, groups T, Hk, K].
    """
    batch, length, heads, width = q.shape
    return q.reshape(batch, length, heads // groups, groups, width).movedim(3, 1).flatten(1, 2)


def _mask_of_rows(mask: Tensor, groups: int) -> Tensor:
    """Return the mask [B, 1 or Hk groups, T, S] of queries for `_as_rows` [B, 1 or Hk, groups T, S]."""
    batch, heads, *lengths = mask.shape
    if heads == 1:
        apart = mask[:, :, None].expand(-1, -1, groups, -1, -1)
    else:
        apart = mask.reshape(batch, heads // groups, groups, *lengths)
    return apart.flatten(2, 3)


def _apart(read: Tensor, groups: int) -> Tensor:
    """Return what rows of `_as_rows` read [B, groups T, Hk, V] as [B, T, Hk groups, V]."""
    batch, rows, heads, width = read.shape
    return read.reshape(batch, groups, rows // groups, heads, width).movedim(1, 3).flatten(2, 3)


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
    width = v.shape[-1]
    if width < k.shape[-1] and not v.is_cuda:  # a CPU's fused kernel takes no other widths
        v = F.pad(v, (0, k.shape[-1] - width))
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)
    return o[..., :width].transpose(1, 2)
