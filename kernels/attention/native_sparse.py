"""Softmax attention to means of blocks of keys, and to the keys of blocks whose means got most of it."""

from typing import Any

import torch
from torch import Tensor

from linbench.kernels.attention.calls import Heads, by_rows, to_heads
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

FORCED = 3
"""Blocks that a query reads whatever their scores are: the first, its own and the one before it."""


def compressed_and_selected(
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
) -> tuple[Tensor, Tensor]:
    """Return two of the three branches of native sparse attention (NSA), arXiv:2502.11089.

    compressed_i = sum_c p_ic mean(v in c) with p_ic = softmax_c(scale q_i . mean(k in c)) over the blocks c
    of `block` positions that end at i or before; zero where there is none.
    selected_i = sum_j softmax_j(scale q_i . k_j) v_j over the keys j <= i of `blocks` blocks: the first, the
    query's own, the one before it, and those with the largest mean of p_ic over the heads of queries that
    share a key. The choice has no gradient.

    Args:
        q: [B, T, H, K].
        k, v: [B, S, Hk, K] and [B, S, Hk, V]; Hk divides H.
        block: positions in a block.
        blocks: how many blocks a query reads; early queries read all there are.
        query_positions, key_positions: as `attention` has them, with keys of all positions from 0 to a
            query's, in any order, and empty places anywhere.
        scale: factor on the scores, a number or one per head [H]; None is K ** -0.5.
        empty_is_zero: whether places without a key hold zeros, so that they need not be masked.
        backend: "auto", "blocks", which lays no matrix of all queries and keys in memory, or "reference".

    Returns: both branches [B, T, H, V] in the dtype of v.

    Raises ValueError: only one kind of positions is given, shapes do not fit together, a number of blocks or
    a backend is not allowed.
    """
    require_blocks(block, blocks, least=FORCED)
    heads = to_heads(q, k, v, query_positions, key_positions, scale, empty_is_zero=empty_is_zero)
    took = choose_backend(backend, _BACKENDS, v, otherwise="blocks", empty="blocks")
    with without_autocast(q):
        both = _BACKENDS[took](heads, q.shape[2] // k.shape[2], block, blocks).transpose(1, 2).to(v.dtype)
    compressed, selected = both.chunk(2, dim=-1)
    return compressed, selected


def _blocks(heads: Heads, groups: int, block: int, blocks: int) -> Tensor:
    o: Tensor = call_folded(_by_rows, groups, block, blocks, *heads)
    return o


def _by_rows(groups: int, block: int, blocks: int, *operands: Any) -> Tensor:
    """Return both branches [B, H, T, 2 V]; `groups` heads of queries share a key."""
    heads = by_position(Heads(*operands))

    def rows(q: Tensor, at: Tensor, k: Tensor, v: Tensor, mean_keys: Tensor, mean_values: Tensor) -> Tensor:
        number, own = torch.arange(mean_keys.shape[2], device=at.device), at[..., None] // block
        unseen = (number + 1) * block - 1 > at[..., None]
        match = q @ mean_keys.mT
        # of a query that sees no block a softmax over nothing would make NaN
        match = match.masked_fill(unseen, torch.finfo(match.dtype).min)
        weights = match.softmax(-1).masked_fill(unseen, 0.0)
        batch, heads_of_queries, *lengths = weights.shape
        score = weights.detach().view(batch, heads_of_queries // groups, groups, *lengths).mean(dim=2)
        forced = (number == 0) | (number == own) | (number == own - 1)
        score = score.masked_fill(forced, float("inf")).masked_fill(number > own, float("-inf"))
        chosen = (best_blocks(score, blocks) & (number <= own)).repeat_interleave(groups, dim=1)
        return torch.cat([weights @ mean_values, attend_within(q, at, k, v, chosen, block)], dim=-1)

    return by_rows(
        rows,
        (heads.q, heads.query_positions),
        # row t needs at most t + 1 of the means
        (heads.k, heads.v, block_means(heads.k, block), block_means(heads.v, block)),
        in_order=heads.in_order,
    )


def reference(heads: Heads, groups: int, block: int, blocks: int) -> Tensor:
    """Read means and choose blocks query by query, to be read beside the paper."""
    batch, count, length, _ = heads.q.shape
    rows = []
    for b in range(batch):
        keys, values = keys_in_order(heads, b)
        starts = range(0, keys.shape[1], block)
        mean_keys, mean_values = (
            torch.stack([x[:, i : i + block].sum(dim=1) / block for i in starts], dim=1)
            for x in (keys, values)
        )
        for t, at in enumerate(heads.query_positions[b, 0].tolist()):
            seen, own = (at + 1) // block, at // block
            match = torch.einsum("hk,hmk->hm", heads.q[b, :, t], mean_keys[:, :seen])
            weights = match.softmax(dim=-1)
            compressed = torch.einsum("hm,hmv->hv", weights, mean_values[:, :seen])
            forced = sorted({0, max(own - 1, 0), own})
            others = [c for c in range(own) if c not in forced]
            for h in range(count):
                first = h // groups * groups
                shares = weights[first : first + groups, others].detach().mean(dim=0)
                best = shares.topk(min(blocks - len(forced), len(others))).indices.tolist()
                chosen = torch.tensor([*forced, *(others[i] for i in best)], device=match.device)
                selected = read_blocks(heads.q[b, h, t], keys[h], values[h], chosen, block, at)
                rows.append(torch.cat([compressed[h], selected]))
    return torch.stack(rows).view(batch, length, count, -1).transpose(1, 2)


_BACKENDS = {"blocks": _blocks, "reference": reference}
