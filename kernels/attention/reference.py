"""Softmax attention one query at a time, to be read beside the papers."""

import torch
from torch import Tensor

from linbench.kernels.attention.positions import positions_from_zero, visible
from linbench.kernels.attention.weights import Weigh


def reference(
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
    """Return attention; arguments are those of `attention`, with as many heads of keys as of queries.

    Keys that may not be seen are left out, not masked.
    """
    query_positions, key_positions = (
        (positions_from_zero(x) if given is None else given).expand(x.shape[0], -1)
        for x, given in ((q, query_positions), (k, key_positions))
    )
    seen = visible(query_positions, key_positions, window)
    rows = []
    for b in range(q.shape[0]):
        for t in range(q.shape[1]):
            keys, values = k[b, seen[b, t]], v[b, seen[b, t]]  # [S', H, K], [S', H, V]
            scores = scale * torch.einsum("hk,shk->hs", q[b, t], keys)
            if slopes is not None:
                scores = scores - slopes[:, None] * (query_positions[b, t] - key_positions[b, seen[b, t]])
            if kept is not None:
                scores = scores + (kept[0][b, t] - kept[1][b, seen[b, t]]).mT.to(scores.dtype)
            if weigh == "squared_relu":
                weights = scores.relu().square() / len(keys)
            else:
                weights = scores.softmax(dim=-1)
            rows.append(torch.einsum("hs,shv->hv", weights, values))
    return torch.stack(rows).reshape(*q.shape[:3], v.shape[-1])
