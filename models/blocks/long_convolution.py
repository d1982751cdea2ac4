"""Convolutions with filters as long as the sequence, and filters that a small network makes of time.

arXiv:2302.10866.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.models.blocks.init import CPU

LEAST = 0.01
"""The rest that a window leaves: in the first channel after SLOWEST `length`, in the last after FASTEST."""
SLOWEST, FASTEST = 1.5, 0.3


def long_convolution(x: Tensor, taps: Tensor) -> Tensor:
    """Return y_t = sum_{s <= t} taps_{t-s} x_s for each channel, by Fourier transforms of twice the length.

    Args:
        x: [B, T, D], in at least float32.
        taps: [D, T].
    """
    length = x.shape[1]
    product = torch.fft.rfft(x.mT, n=2 * length) * torch.fft.rfft(taps, n=2 * length)
    y: Tensor = torch.fft.irfft(product, n=2 * length)
    return y[..., :length].mT


class ImplicitFilter(nn.Module):
    """A filter for each channel, made of time by a network with sines, times an exponential window.

        taps_t = (network(s, cos(f w_t), -sin(f w_t))) e^(-r s),  s = t / (length - 1),  w_t = 2 pi t / length

    with bands f from 1e-4 to bands - 1, and a rate r for each channel, equally spaced. After every map but
    the last stands sin(g x), with a learned g for each hidden unit. Taps beyond `length` are those of s > 1.

    Args:
        width: number of channels D.
        length: tokens over which time s goes from 0 to 1.
        bands: number of frequencies f.
        hidden: width of the network.
        inner: number of its maps from hidden units to hidden units.
        frequency: g at first.
    """

    def __init__(
        self, width: int, *, length: int, bands: int, hidden: int, inner: int, frequency: float
    ) -> None:
        super().__init__()
        self.width, self.length, self.bands = width, length, bands
        inputs = [1 + 2 * bands, *[hidden] * inner]
        self.maps = nn.ModuleList(nn.Linear(each, hidden) for each in inputs)
        self.last = nn.Linear(hidden, width, bias=False)
        self.frequency = nn.Parameter(torch.full((hidden,), frequency, device=CPU))

    def forward(self, count: int, dtype: torch.dtype) -> Tensor:
        """Return the taps [D, count] of ages 0 ... count - 1, computed in `dtype`."""
        device, frequency = self.frequency.device, self.frequency.to(dtype)
        age = torch.arange(count, device=device, dtype=dtype)[:, None]
        time, turn = age / (self.length - 1), age * (2 * math.pi / self.length)
        angles = turn * torch.linspace(1e-4, self.bands - 1, self.bands, device=device, dtype=dtype)
        x = torch.cat([time, angles.cos(), -angles.sin()], dim=-1)
        for each in self.maps:
            assert isinstance(each, nn.Linear)
            x = (frequency * F.linear(x, each.weight.to(dtype), each.bias.to(dtype))).sin()
        slowest, fastest = -math.log(LEAST) / SLOWEST, -math.log(LEAST) / FASTEST
        rates = torch.linspace(slowest, fastest, self.width, device=device, dtype=dtype)
        taps = F.linear(x, self.last.weight.to(dtype)) * (-time * rates).exp()
        return taps.T
