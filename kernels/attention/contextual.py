"""Softmax attention with contextual positions: how far back a key stands is counted by gates."""

import torch
from torch import Tensor

from linbench.kernels.attention.calls import Heads, by_rows, to_heads
from linbench.kernels.attention.positions import EMPTY
from linbench.kernels.operators import call_folded, choose_backend, without_autocast


def contextual_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    *,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    scale: float | Tensor | None = None,
    empty_is_zero: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Return softmax attention with contextual positions (CoPE), arXiv:2405.18719.

    o_i = sum_{j <= i} softmax_j(scale q_i . (k_j + e[p_ij])) v_j with p_ij = sum_{j <= l <= i} sigmoid(scale
    q_i . k_l), at most P - 1; e is interpolated linearly between whole positions.

    Args:
        q: [B, T, H, K].
        k, v: [B, S, Hk, K] and [B, S, Hk, V]; Hk divides H.
        table: e [P, K], for all heads.
        query_positions, key_positions: as `attention` has them, keys in the order of their positions, with
            empty places anywhere.
        scale: factor on the scores, a number or one per head [H]; None is K ** -0.5.
        empty_is_zero: whether places without a key hold zeros, so that they need not be masked.
        backend: "auto", "blocks", which lays no matrix of all queries and keys in memory, or "reference".

    Returns: [B, T, H, V] in the dtype of v.

    Raises ValueError: only one kind of positions is given, shapes do not fit together, a backend is not
    there.
    """
    heads = to_heads(q, k, v, query_positions, key_positions, scale, empty_is_zero=empty_is_zero)
    if table.dim() != 2 or not len(table) or table.shape[1] != q.shape[3]:
        raise ValueError(f"table is [P, {q.shape[3]}] with P at least 1, not {tuple(table.shape)}")
    took = choose_backend(backend, _BACKENDS, v, otherwise="blocks", empty="blocks")
    with without_autocast(q):
        return _BACKENDS[took](heads, table.to(heads.q.dtype)).transpose(1, 2).to(v.dtype)


def _blocks(heads: Heads, table: Tensor) -> Tensor:
    o: Tensor = call_folded(_by_rows, table[None], *heads)
    return o


def _by_rows(
    table: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_positions: Tensor,
    key_positions: Tensor,
    in_order: bool,
) -> Tensor:
    """Return attention, with a table [groups, P, K] for each of as many parts of the batch."""
    at_whole = q.view(len(table), -1, *q.shape[1:]) @ table[:, None, None].mT
    return by_rows(
        _rows, (q, query_positions, at_whole.flatten(0, 1)), (k, v, key_positions), in_order=in_order
    )


def _rows(
    q: Tensor, query_positions: Tensor, at_whole: Tensor, k: Tensor, v: Tensor, key_positions: Tensor
) -> Tensor:
    """Return rows of attention; at_whole [B, H, T, P] are a query's products with the table."""
    z = q @ k.mT
    there = key_positions[..., None, :]
    unseen = (there > query_positions[..., :, None]) | (there == EMPTY)
    steps = z.sigmoid().masked_fill(unseen, 0.0)
    last = at_whole.shape[-1] - 1
    position = steps.flip(-1).cumsum(-1).flip(-1).clamp(max=last)
    below = position.floor()
    share = position - below
    # clamped once more: where a model diverged, or in a rehearsal (precompile.py), any number may come out
    start = at_whole.gather(-1, below.long().clamp(0, last))
    end = at_whole.gather(-1, position.ceil().long().clamp(0, last))
    z = z + end * share + start * (1 - share)
    return z.masked_fill(unseen, float("-inf")).softmax(-1) @ v


def reference(heads: Heads, table: Tensor) -> Tensor:
    """Count each query's way back key by key, to be read beside the paper."""
    q, k, v, query_positions, key_positions, _ = heads
    last = len(table) - 1
    rows = []
    for b in range(len(q)):
        for t in range(q.shape[2]):
            at = key_positions[b, 0]
            seen = (at != EMPTY) & (at <= query_positions[b, 0, t])
            score = torch.einsum("hk,hsk->hs", q[b, :, t], k[b][:, seen])
            at_whole = q[b, :, t] @ table.mT  # [H, P]
            position, scores = torch.zeros_like(score[:, 0]), []
            for j in reversed(range(score.shape[1])):
                position = position + score[:, j].sigmoid()
                here = position.clamp(max=last)
                below = here.long().clamp(0, max(last - 1, 0))[:, None]  # between it and the next
                start, end = (at_whole.gather(1, (below + n).clamp(max=last))[:, 0] for n in (0, 1))
                scores.append(score[:, j] + torch.lerp(start, end, here - below[:, 0]))
            weight = torch.stack(scores[::-1], dim=1).softmax(dim=-1)
            rows.append(torch.einsum("hs,hsv->hv", weight, v[b][:, seen]))
    return torch.stack(rows).reshape(len(q), q.shape[2], *v[0, :, 0].shape).transpose(1, 2)


_BACKENDS = {"blocks": _blocks, "reference": reference}
