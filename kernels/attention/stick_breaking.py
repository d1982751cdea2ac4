"""Stick-breaking attention: going back from a query, each key takes its share of what is left of a stick."""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention.calls import Heads, by_rows, to_heads
from linbench.kernels.attention.positions import EMPTY
from linbench.kernels.operators import call_folded, choose_backend, without_autocast


def stick_breaking(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    scale: float | Tensor | None = None,
    empty_is_zero: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Return stick-breaking attention, arXiv:2410.17980.

    o_i = sum_{j < i} sigmoid(z_ij) prod_{j < l < i} (1 - sigmoid(z_il)) v_j with z_ij = scale q_i . k_j. A
    query does not see the key at its own position; what no key takes is dropped.

    Args:
        q: [B, T, H, K].
        k, v: [B, S, Hk, K] and [B, S, Hk, V]; Hk divides H.
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
    took = choose_backend(backend, _BACKENDS, v, otherwise="blocks", empty="blocks")
    with without_autocast(q):
        return _BACKENDS[took](heads).transpose(1, 2).to(v.dtype)


def _blocks(heads: Heads) -> Tensor:
    o: Tensor = call_folded(_by_rows, *heads)
    return o


def _by_rows(
    q: Tensor, k: Tensor, v: Tensor, query_positions: Tensor, key_positions: Tensor, in_order: bool
) -> Tensor:
    return by_rows(_rows, (q, query_positions), (k, v, key_positions), in_order=in_order)


def _rows(q: Tensor, query_positions: Tensor, k: Tensor, v: Tensor, key_positions: Tensor) -> Tensor:
    z = q @ k.mT
    there = key_positions[..., None, :]
    unseen = (there >= query_positions[..., :, None]) | (there == EMPTY)
    left = F.logsigmoid(-z).masked_fill(unseen, 0.0)
    # what the keys between this one and the query leave, without a difference of two sums
    left = F.pad(left.flip(-1).cumsum(-1).flip(-1)[..., 1:], (0, 1))
    return (F.logsigmoid(z) + left).exp().masked_fill(unseen, 0.0) @ v


def reference(heads: Heads) -> Tensor:
    """Break the stick of each query key by key, to be read beside the paper."""
    q, k, v, query_positions, key_positions, _ = heads
    rows = []
    for b in range(len(q)):
        for t in range(q.shape[2]):
            at = key_positions[b, 0]
            seen = (at != EMPTY) & (at < query_positions[b, 0, t])
            share = torch.einsum("hk,hsk->hs", q[b, :, t], k[b][:, seen]).sigmoid()
            left, weights = torch.ones_like(q[b, :, t, 0]), []
            for j in reversed(range(share.shape[1])):
                weights.append(left * share[:, j])
                left = left * (1 - share[:, j])
            weight = torch.stack(weights[::-1], dim=1) if weights else share
            rows.append(torch.einsum("hs,hsv->hv", weight, v[b][:, seen]))
    return torch.stack(rows).reshape(len(q), q.shape[2], *v[0, :, 0].shape).transpose(1, 2)


_BACKENDS = {"blocks": _blocks, "reference": reference}
