"""Diagonal state spaces: for each channel a filter of modes that oscillate and fade. arXiv:2206.11893."""

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import without_autocast
from linbench.models.blocks.init import CPU, indices
from linbench.models.blocks.starting_gates import draw

CHUNK = 64
"""Tokens of a chunk, whose outputs are one product with a matrix of the filter's taps."""

SMALL = 0.05
"""Size of d l below which (e^{d l} - 1) / l is computed as a series; the difference would lose its digits."""

Frequencies = Literal["lin", "inv"]
Discretisation = Literal["zoh", "bilinear"]


class Filter(NamedTuple):
    """The effect of `length` tokens in each of D channels and M modes; all complex.

    powers: e^{d l n} for n = 0 ... length [D, length + 1, M]. write: factor of a token that is written [D,
    M]. read: factor of a state that is read [D, M].
    """

    powers: Tensor
    write: Tensor
    read: Tensor


class Modes(nn.Module):
    """h_t = A h_{t-1} + B x_t,  y_t = 2 Re(C . h_t),  for each channel, with modes l = -e^a + i b.

    The step d, a, b and C are learned. zoh, a zero-order hold: A = e^{d l}, B = (e^{d l} - 1) / l. bilinear:
    A = (1 + d l / 2) / (1 - d l / 2), B = d / (1 - d l / 2). At first d is log-uniform in (0.001, 0.1), Re l
    = -1/2, and C complex standard normal; Im l is pi n (lin: S4D-Lin) or N / pi (N / (2 n + 1) - 1) (inv:
    S4D-Inv).

    Args:
        width: number of channels D.
        states: N, two floats for each mode.
        frequencies: initial Im l.
        discretisation: zoh or bilinear.
        strata: whether steps are drawn in strata.
    """

    def __init__(
        self,
        width: int,
        states: int,
        frequencies: Frequencies = "lin",
        discretisation: Discretisation = "zoh",
        *,
        strata: bool = False,
    ) -> None:
        super().__init__()
        self.discretisation = discretisation
        self.state_shape, modes = (width, states), states // 2
        self.log_step = nn.Parameter(draw(math.log(0.001), math.log(0.1), width, strata=strata))
        self.log_decay = nn.Parameter(torch.full((width, modes), 0.5, device=CPU).log())
        n = indices(modes)
        frequency = math.pi * n if frequencies == "lin" else states / math.pi * (states / (2 * n + 1) - 1)
        self.frequency = nn.Parameter(frequency.repeat(width, 1))
        self.read = nn.Parameter(torch.randn(width, modes, 2, device=CPU) * 0.5**0.5)

    def forward(self, u: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return y [B, T, D] and the memory, in at least float32.

        Args:
            u: [B, T, D].
            memory: [B, D, N], real and imaginary part of each mode; None stands for zeros.
        """
        memory = self.init_state(len(u)) if memory is None else memory
        h = torch.view_as_complex(memory.view(*memory.shape[:2], -1, 2))
        in_full_chunks = u.shape[1] // CHUNK * CHUNK
        rest = u.shape[1] - in_full_chunks
        outputs = []
        with without_autocast(u):
            for part, length in ((u[:, :in_full_chunks], CHUNK), (u[:, in_full_chunks:], rest)):
                if part.shape[1]:
                    y, h = self._in_chunks(part.to(memory.dtype), h, length)
                    outputs.append(y)
        return torch.cat(outputs, dim=1), torch.view_as_real(h).flatten(-2)

    def _in_chunks(self, u: Tensor, h: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Compute u [B, n length, D] after h [B, D, M].

        Inside all chunks the taps give the outputs; from chunk to chunk the modes do.
        """
        powers, write, read = self._filter(length, u.dtype)
        taps = 2 * (powers[:, :length] * (write * read)[:, None]).real.sum(dim=-1)
        # [D, length, length] of taps[i - j], zero where i < j: copies of a row of twice the length, each
        # shifted by one
        rows = F.pad(taps, (0, length)).repeat(1, length)[:, : length * (2 * length - 1)]
        toeplitz = rows.view(-1, length, 2 * length - 1)[..., :length].mT
        batch, count = len(u), u.shape[1] // length
        chunks = u.reshape(batch, count, length, -1).permute(3, 2, 0, 1)  # [D, length, B, n]
        flat = chunks.flatten(2)
        # what each chunk adds to the state at its end, [D, N, B n] and then [n, B, D, M] complex
        weights = torch.view_as_real(powers[:, :length].flip(1) * write[:, None]).flatten(-2)
        added = (weights.mT @ flat).view(*h.shape[1:], 2, batch, count)
        added = torch.view_as_complex(added.permute(4, 3, 0, 1, 2).contiguous())
        starts = []
        for each in added:
            starts.append(h)
            h = powers[:, length] * h + each
        before = torch.view_as_real(torch.stack(starts, dim=-1)).movedim(-1, -2).flatten(2, 3)  # [B, D, N, n]
        reads = torch.view_as_real((2 * read[:, None] * powers[:, 1:]).conj().resolve_conj()).flatten(-2)
        y = toeplitz @ flat + reads @ before.permute(1, 2, 0, 3).flatten(2)
        return y.view(chunks.shape).permute(2, 3, 1, 0).flatten(1, 2), h

    def _filter(self, length: int, dtype: torch.dtype) -> Filter:
        step, decay = self.log_step.exp()[:, None].to(dtype), self.log_decay.exp().to(dtype)
        frequency, read = self.frequency.to(dtype), self.read.to(dtype)
        times = torch.arange(length + 1, device=step.device, dtype=dtype)[:, None]
        decay_per_token, angle_per_token = step * decay, step * frequency
        if self.discretisation == "bilinear":
            decay_per_token, angle_per_token = _bilinear(decay_per_token, angle_per_token)
        size, angle = (-times * decay_per_token[:, None]).exp(), times * angle_per_token[:, None]
        powers = torch.complex(size * angle.cos(), size * angle.sin())
        if self.discretisation == "bilinear":
            write = step / torch.complex(1 + step * decay / 2, -step * frequency / 2)
        else:
            write = zero_order_hold(step, decay, frequency, powers[:, 1])
        return Filter(powers, write, torch.view_as_complex(read))

    def init_state(self, batch: int) -> Tensor:
        """Return zeros [B, D, N]."""
        return self.log_step.new_zeros(batch, *self.state_shape, dtype=at_least_float32(self.log_step.dtype))

    def flops_per_token(self) -> int:
        """Return operations per token: 14 for each mode.

        These are a product of complex numbers, a product of a complex with a real number, a sum, and the real
        part of one product, added up.
        """
        return 7 * math.prod(self.state_shape)


def _bilinear(decay: Tensor, frequency: Tensor) -> tuple[Tensor, Tensor]:
    """Return -log |A| and the angle of A = (1 + z / 2) / (1 - z / 2) for z = -decay + i frequency.

    |A| may be zero and counts as at least 1e-19.
    """
    # |A|^2 = above / below; near 1 its logarithm is taken from 1 - |A|^2, which keeps its digits
    ahead, behind, half = 1 - decay / 2, 1 + decay / 2, frequency / 2
    above, below = ahead.square() + half.square(), behind.square() + half.square()
    lost = 2 * decay / below  # 1 - |A|^2
    slow, fast = torch.log1p(-lost.clamp(max=0.5)), (above.clamp(min=1e-38) / below).log()
    return -torch.where(lost < 0.5, slow, fast) / 2, torch.atan2(half, ahead) + torch.atan2(half, behind)


def zero_order_hold(step: Tensor, decay: Tensor, frequency: Tensor, kept: Tensor) -> Tensor:
    """Return (e^{d l} - 1) / l of modes l = -decay + i frequency, given e^{d l}.

    Where d l is small it is a series.
    """
    inverse = torch.complex(-decay, -frequency) / (decay.square() + frequency.square())  # of l
    z = step * torch.complex(-decay, frequency)
    small = z.real.square() + z.imag.square() < SMALL**2
    series = step * (1 + z / 2 * (1 + z / 3 * (1 + z / 4 * (1 + z / 5))))
    return torch.where(small, series, (kept - 1) * inverse)
