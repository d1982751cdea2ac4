"""Which keys a query may see."""

import torch
from torch import Tensor

EMPTY = -1
"""The position of a cache place that holds nothing yet. Its key and value are never read, whatever they
contain."""


def visible(query_positions: Tensor, key_positions: Tensor, window: int | None) -> Tensor:
    """[B, T, S]: which keys a query may see."""
    distance = query_positions[:, :, None] - key_positions[:, None, :]
    seen = (distance >= 0) & (key_positions[:, None, :] != EMPTY)
    return seen if window is None else seen & (distance < window)


def positions_from_zero(x: Tensor) -> Tensor:
    """[1, T] positions 0, 1, 2, ... for x [B, T, ...]."""
    return torch.arange(x.shape[1], device=x.device)[None]
