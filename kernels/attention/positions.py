"""Positions of queries and keys, and which keys a query may see."""

import torch
from torch import Tensor

EMPTY = -1
"""Position of a cache place that holds nothing yet. Its key and value are never read, whatever they contain.
"""

WIDEST = 256
"""Largest dimension of a head that the Triton kernels of softmax attention take."""


def visible(query_positions: Tensor, key_positions: Tensor, window: int | None) -> Tensor:
    """Return a mask [B, T, S] of the keys that each query may see."""
    at_queries, at_keys = query_positions[:, :, None], key_positions[:, None, :]
    seen = (at_keys <= at_queries) & (at_keys != EMPTY)
    return seen if window is None else seen & (at_queries - at_keys < window)


def positions_from_zero(x: Tensor) -> Tensor:
    """Return positions 0, 1, 2, ... [1, T] for x [B, T, ...]."""
    return torch.arange(x.shape[1], device=x.device)[None]
