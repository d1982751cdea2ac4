"""What must not be rounded to 16 bits: logarithms, sums over a sequence, memories."""

import torch
from torch import Tensor


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def widened(x: Tensor) -> Tensor:
    """x in at least float32."""
    return x.to(at_least_float32(x.dtype))
