"""Where a token stands: rotary angles and linear biases."""

import torch
from torch import Tensor

from linbench.models.blocks.init import CPU


def angles(positions: Tensor, dim: int, dtype: torch.dtype, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Cosine and sine [B or 1, T, dim/2] of rotary angles (2104.09864) at integer `positions` [B or 1, T]: p
    * base^(-2i/dim)."""
    half = dim // 2
    frequency = base ** (-torch.arange(half, device=positions.device, dtype=dtype) / half)
    angle = positions[:, :, None].to(dtype) * frequency
    return angle.cos(), angle.sin()


def alibi_slopes(heads: int) -> Tensor:
    """[H] slopes of ALiBi (2108.12409): 2^(-8h/H) for a power of two, else the next lower power's, then every
    other of twice it."""
    power = 2 ** (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    between = [2.0 ** (-4 * (2 * h + 1) / power) for h in range(heads - power)]
    return torch.tensor(slopes + between, device=CPU)
