"""Dtypes of logarithms, sums over a sequence and memories, which must not be rounded to 16 bits."""

import torch
from torch import Tensor


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def to_float32(x: Tensor) -> Tensor:
    """Return x in at least float32."""
    return x.to(at_least_float32(x.dtype))
