"""Softmax attention to a query's own block of keys and to those whose mean key matches it best."""

from typing import Any

import torch
from torch import Tensor

from linbench.kernels.attention.calls import Heads, by_rows, scaled, to_heads
from linbench.kernels.attention.key_blocks import (
    attend_within,
    best_blocks,
    block_means,
    by_position,
    keys_in_order,
    read_blocks,
    require_blocks,
)
from linbench.kernels.operators import call_folded, choose_backend, without_autocast


def mixture_of_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    block: int,
    blocks: int,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    scale: float | Tensor | None = None,
    empty_is_zero: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Return mixture of block attention (MoBA), arXiv:2502.13189.

    o_i = sum_j softmax_j(scale q_i . k_j) v_j over the keys j <= i of chosen blocks. A block is `block`
    positions. Chosen are a query's own, and of those before it the `blocks` - 1 with the largest q_i . mean
    of their keys, for each head of queries. The choice has no gradient.

    Args:
        q: [B, T, H, K].
        k, v: [B, S, Hk, K] and [B, S, Hk, V]; Hk divides H.
        block: positions in a block.
        blocks: how many blocks a query reads, its own included; early queries read all there are.
        query_positions, key_positions: as `attention` has them, with keys of all positions from 0 to a
            query's, in any order, and empty places anywhere.
        scale: factor on the scores, a number or one per head [H]; None is K ** -0.5.
        empty_is_zero: whether places without a key hold zeros, so that they need not be masked.
        backend: "auto", "blocks", which lays no matrix of all queries and keys in memory, or "reference".

    Returns: [B, T, H, V] in the dtype of v.

    Raises ValueError: only one kind of positions is given, shapes do not fit together, a number of blocks or
    a backend is not allowed.
    """
    require_blocks(block, blocks, least=1)
    heads = to_heads(q, k, v, query_positions, key_positions, 1.0, empty_is_zero=empty_is_zero)
    took = choose_backend(backend, _BACKENDS, v, otherwise="blocks", empty="blocks")
    with without_autocast(q):
        asked = heads.q.detach()
        heads = heads._replace(q=scaled(heads.q, scale))
        return _BACKENDS[took](asked, heads, block, blocks).transpose(1, 2).to(v.dtype)


def _blocks(asked: Tensor, heads: Heads, block: int, blocks: int) -> Tensor:
    o: Tensor = call_folded(_by_rows, block, blocks, asked, *heads)
    return o


def _by_rows(block: int, blocks: int, asked: Tensor, *operands: Any) -> Tensor:
    """Return attention; `asked` [B, H, T, K] are queries that are not scaled."""
    heads = by_position(Heads(*operands))
    means = block_means(heads.k.detach(), block)

    def rows(q: Tensor, asked: Tensor, at: Tensor, k: Tensor, v: Tensor, means: Tensor) -> Tensor:
        number, own = torch.arange(means.shape[2], device=at.device), at[..., None] // block
        match = (asked @ means.mT).masked_fill(number >= own, float("-inf"))
        chosen = (best_blocks(match, blocks - 1) & (number < own)) | (number == own)
        return attend_within(q, at, k, v, chosen, block)

    return by_rows(
        rows,
        (heads.q, asked, heads.query_positions),
        (heads.k, heads.v, means),  # row t needs fewer than t + 1 of the means
        in_order=heads.in_order,
    )


def reference(asked: Tensor, heads: Heads, block: int, blocks: int) -> Tensor:
    """Choose blocks query by query, to be read beside the paper."""
    rows = []
    for b in range(len(asked)):
        keys, values = keys_in_order(heads, b)
        means = [keys[:, i : i + block].detach().sum(dim=1) / block for i in range(0, keys.shape[1], block)]
        for t, at in enumerate(heads.query_positions[b, 0].tolist()):
            own = at // block
            for h, (k, v) in enumerate(zip(keys, values, strict=True)):
                chosen = torch.tensor([own], device=k.device)
                if own:
                    match = torch.einsum("k,mk->m", asked[b, h, t], torch.stack(means)[:own, h])
                    chosen = torch.cat([match.topk(min(blocks - 1, own)).indices, chosen])
                rows.append(read_blocks(heads.q[b, h, t], k, v, chosen, block, at))
    batch, count, length, _ = asked.shape
    return torch.stack(rows).view(batch, length, count, -1).transpose(1, 2)


_BACKENDS = {"blocks": _blocks, "reference": reference}
