"""Where a token stands: rotary angles and linear biases."""

import torch
from torch import Tensor

from linbench.kernels.wide import at_least_float32


def rotate(x: Tensor, positions: Tensor, base: float = 10_000.0) -> Tensor:
    """Rotary embedding (2104.09864) of x [B, T, H, D] at integer `positions` [B, T]; dimension i pairs with i + D/2, angle p * base^(-2i/D)."""
    half = x.shape[-1] // 2
    wide = at_least_float32(x.dtype)
    frequency = base ** (-torch.arange(half, device=x.device, dtype=wide) / half)
    angle = positions[:, :, None, None].to(wide) * frequency
    first, second = x.to(wide).chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)


def alibi_slopes(heads: int) -> Tensor:
    """[H] slopes of ALiBi (2108.12409): 2^(-8h/H) for a power of two, else the next lower power's, then every other of twice it."""
    power = 2 ** (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    between = [2.0 ** (-4 * (2 * h + 1) / power) for h in range(heads - power)]
    return torch.tensor(slopes + between)
