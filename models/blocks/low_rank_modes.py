"""State spaces whose modes are joined by a matrix of rank one, as S4's. arXiv:2111.00396."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import without_autocast
from linbench.models.blocks.diagonal_ssm import Modes
from linbench.models.blocks.hippo import hippo
from linbench.models.blocks.long_convolution import long_convolution

SHORT = 16
"""Tokens up to which the recurrence takes less time than the filter. Chosen."""


class Continuous(NamedTuple):
    """d [D, 1], and l, P, B and C of each mode [D, M], complex."""

    step: Tensor
    modes: Tensor
    low_rank: Tensor
    write: Tensor
    read: Tensor


class Discrete(NamedTuple):
    """The effect of a token: A h = kept h - turned 2 Re(seen . h), and B = write. Each is [D, M], complex."""

    kept: Tensor
    turned: Tensor
    seen: Tensor
    write: Tensor


class LowRankModes(Modes):
    """h_t = A h_{t-1} + B x_t,  y_t = 2 Re(C . h_t),  for each channel.

    A and B are made of a continuous A' = diag(l) - P P^* and B', by the bilinear rule: A = (1 - d A' / 2)^-1
    (1 + d A' / 2), and B = (1 - d A' / 2)^-1 d B'. Modes come in conjugate pairs, of which one is kept. At
    first A' and B' are HiPPO-LegS in the basis of the modes of its normal part; steps d and C start as those
    of S4D. With P = 0 and B' = 1 it is `Modes`.

    Args:
        width: number of channels D.
        states: N, two floats for each mode.
        strata: whether steps are drawn in strata.
    """

    def __init__(self, width: int, states: int, *, strata: bool = False) -> None:
        super().__init__(width, states, discretisation="bilinear", strata=strata)
        frequency, low_rank, write = hippo(states)
        with torch.no_grad():
            self.frequency.copy_(frequency.expand(width, -1))
        self.low_rank, self.write = (
            nn.Parameter(torch.view_as_real(each).float().repeat(width, 1, 1)) for each in (low_rank, write)
        )

    def forward(  # type: ignore[override]
        self, u: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return y [B, T, D] and the memory, None if none was given and there are many tokens.

        Few tokens take the recurrence, many the filter.

        Args:
            u: [B, T, D].
            memory: [B, D, N], real and imaginary part of each mode; None stands for zeros.
        """
        with without_autocast(u):
            u = u.to(at_least_float32(self.log_step.dtype))
            if u.shape[1] <= SHORT:
                return self.recur(u, self.init_state(len(u)) if memory is None else memory)
            return self.convolve(u, memory)

    def recur(self, u: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return y and the memory, token by token."""
        continuous = self.continuous(u.dtype)
        token = discrete(continuous)
        read, written = row(continuous.read), torch.view_as_real(token.write).flatten(-2)
        outputs = []
        for each in u.unbind(dim=1):
            memory = advance(token, memory) + written * each[..., None]
            outputs.append((read * memory).sum(dim=-1))
        return torch.stack(outputs, dim=1), memory

    def convolve(self, u: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return y and the memory, None if none was given: a convolution with a filter as long as u.

        What was in memory is read by C A^t; a token's part of the new memory is A^(T - t) B u_t.
        """
        length = u.shape[1]
        continuous = self.continuous(u.dtype)
        token = discrete(continuous)
        basis = torch.eye(self.state_shape[1], dtype=u.dtype, device=u.device)
        # A [D, N, N] for rows from the right, and its powers of 2, 4, 8, ...
        powers = [advance(token, basis[:, None]).transpose(0, 1)]
        while 2 ** len(powers) <= length:
            powers.append(powers[-1] @ powers[-1])
        y = long_convolution(u, self.taps(continuous, powers, length))
        if memory is None:
            return y, None
        by_columns = [power.mT for power in powers]
        reads = _after(_each_power(row(continuous.read)[:, None], by_columns, length), by_columns, 1)
        writes = _each_power(torch.view_as_real(token.write).flatten(-2)[:, None], powers, length).flip(1)
        y = y + torch.einsum("bdn,dtn->btd", memory, reads)
        left = _after(memory.transpose(0, 1), powers, length).transpose(0, 1)
        return y, left + torch.einsum("btd,dtn->bdn", u, writes)

    def taps(self, continuous: Continuous, powers: list[Tensor], length: int) -> Tensor:
        """Return C A^t B for t < length [D, length].

        Its Fourier transform at z^length = 1 is C (1 - A^length) (1 - A z)^-1 B. By the Woodbury identity the
        inverse is made of sums over modes of one over a difference: products with a Cauchy matrix.
        """
        step, modes, low_rank, write, read = continuous
        c = row(read)[:, None]
        cut = c - _after(c, [power.mT for power in powers], length)  # C (1 - A^length)
        read = torch.view_as_complex(_pairs(cut[:, 0] / 2)).conj()
        turn = -2 * math.pi / length * torch.arange(length // 2 + 1, device=step.device, dtype=torch.float64)
        z = torch.complex(turn.cos(), turn.sin())
        below, above = (1 - z).to(modes.dtype), (1 + z).to(modes.dtype) * (step / 2)
        both = [torch.cat([each, each.conj()], dim=-1) for each in (modes, low_rank, write, read)]
        modes, low_rank, write, read = both
        cauchy = 1 / (below - above[:, None] * modes[..., None])  # [D, N, F]
        pairs = [read * write, read * low_rank, low_rank.conj() * write, low_rank.conj() * low_rank]
        direct, to_sum, from_sum, around = (torch.stack(pairs, dim=1) @ cauchy).unbind(dim=1)
        found = step * (direct - above * to_sum * from_sum / (1 + above * around))
        taps: Tensor = torch.fft.irfft(found, n=length)
        return taps

    def continuous(self, dtype: torch.dtype) -> Continuous:
        """Return the parameters as the equation has them."""
        pairs = (self.low_rank, self.write, self.read)
        low_rank, write, read = (torch.view_as_complex(each.to(dtype)) for each in pairs)
        modes = torch.complex(-self.log_decay.to(dtype).exp(), self.frequency.to(dtype))
        return Continuous(self.log_step.to(dtype).exp()[:, None], modes, low_rank, write, read)

    def flops_per_token(self) -> int:
        """Return operations per token: 22 for each mode, 8 more than without the matrix of rank one."""
        return super().flops_per_token() + 4 * math.prod(self.state_shape)


def discrete(continuous: Continuous) -> Discrete:
    """Return A and B of the bilinear rule. With e = 1 - d l / 2, A is 2 (e + d / 2 P P^*)^-1 - 1."""
    step, modes, low_rank, write, _ = continuous
    inverse = 1 / (1 - step / 2 * modes)
    seen = low_rank.conj() * inverse
    around = 1 + step * (seen * low_rank).real.sum(dim=-1, keepdim=True)
    turned = step * low_rank * inverse / around
    met = (seen * write).real.sum(dim=-1, keepdim=True)
    return Discrete(2 * inverse - 1, turned, seen, step * (write * inverse - turned * met))


def advance(token: Discrete, memory: Tensor) -> Tensor:
    """Return A h for h [B, D or 1, N], real and imaginary part of each mode."""
    kept, turned = torch.view_as_real(token.kept), torch.view_as_real(token.turned).flatten(-2)
    pairs = _pairs(memory)
    crossed = torch.stack([-pairs[..., 1], pairs[..., 0]], dim=-1)
    left = (kept[..., :1] * pairs + kept[..., 1:] * crossed).flatten(-2)
    return left - turned * (row(token.seen) * memory).sum(dim=-1, keepdim=True)


def row(read: Tensor) -> Tensor:
    """Return real r [D, N] with r . h = 2 Re(read . h), for h of real and imaginary parts."""
    return torch.view_as_real(2 * read.conj().resolve_conj()).flatten(-2)


def _pairs(x: Tensor) -> Tensor:
    """Return real and imaginary parts x [..., N] as [..., N / 2, 2]."""
    return x.reshape(*x.shape[:-1], -1, 2)


def _each_power(rows: Tensor, powers: list[Tensor], length: int) -> Tensor:
    """Return rows [D, 1, N] times A^t for t < length [D, length, N]."""
    for power in powers:
        if rows.shape[1] < length:
            rows = torch.cat([rows, rows @ power], dim=1)
    return rows[:, :length]


def _after(rows: Tensor, powers: list[Tensor], length: int) -> Tensor:
    """Return rows [D, R, N] times A^length."""
    for place, power in enumerate(powers):
        if length >> place & 1:
            rows = rows @ power
    return rows
