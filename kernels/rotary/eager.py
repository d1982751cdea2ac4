"""Rotary positions in torch."""

import torch
from torch import Tensor


def eager(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x turned; arguments are those of `rotate`."""
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    cos, sin = cos[:, :, None], sin[:, :, None]
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)
