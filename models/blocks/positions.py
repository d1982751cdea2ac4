"""Positions of tokens: rotary angles and linear biases."""

import torch
from torch import Tensor

from linbench.models.blocks.init import CPU


def angles(positions: Tensor, dim: int, dtype: torch.dtype, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [B or 1, T, dim/2] of rotary angles p * base^(-2i/dim). arXiv:2104.09864.

    Args:
        positions: integers [B or 1, T].
        dim: dimension of a head, even.
        dtype: of the result.
        base: of the geometric frequencies.
    """
    half = dim // 2
    frequency = base ** (-torch.arange(half, device=positions.device, dtype=dtype) / half)
    angle = positions[:, :, None].to(dtype) * frequency
    return angle.cos(), angle.sin()


def alibi_slopes(heads: int) -> Tensor:
    """Return ALiBi's slopes [H]. arXiv:2108.12409.

    For a power of two these are 2^(-8h/H); otherwise those of the next lower power, then every other one of
    twice that power.
    """
    lower_power = 2 ** (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (h + 1) / lower_power) for h in range(lower_power)]
    between = [2.0 ** (-4 * (2 * h + 1) / lower_power) for h in range(heads - lower_power)]
    return torch.tensor(slopes + between, device=CPU)
