"""Decays of KDA: one per key channel and token, positive or of either sign."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.kernels.decay_gate import decay_gate
from linbench.kernels.dtypes import at_least_float32
from linbench.models.blocks.init import CPU, keep
from linbench.models.blocks.linear import LowRank, SharedInput
from linbench.models.blocks.starting_gates import (
    AS_PUBLISHED,
    DrawnGateSettings,
    draw_a_log,
    draw_dt_bias,
    inverse_softplus,
)

FLOOR = 5
"""The most that the logarithm of a safe decay loses per token. arXiv:2510.26692."""

LEAST = math.exp(-FLOOR)
"""The least size of a signed decay. arXiv:2609.24797."""


class ChannelDecay(nn.Module):
    """One decay per key channel: log a_t = -exp(A_log) softplus(W_up W_down x_t + dt_bias).

    A_log is one per head, dt_bias one per channel. Both are drawn as in `ScalarDecay`, and with a
    `forget_bias` dt_bias follows from A.

    Args:
        d_model: width of x.
        rank: rank of the map.
        heads: number of heads.
        dim: channels of a head.
        safe: use -5 sigmoid(exp(A_log) (W_up W_down x_t + dt_bias)) instead, with A = 1 at first.
        matched: let safe decays start where the softplus with A = 1 starts, instead of with its dt_bias.
        settings: the settings that say how it starts.
    """

    def __init__(
        self,
        d_model: int,
        rank: int,
        heads: int,
        dim: int,
        *,
        safe: bool,
        matched: bool = False,
        settings: DrawnGateSettings = AS_PUBLISHED,
    ) -> None:
        super().__init__()
        self.dim, self.safe, self.matched = dim, safe, matched
        self.project = LowRank(d_model, rank, heads * dim)
        self.A_log = nn.Parameter(torch.zeros(heads) if safe else draw_a_log(heads, strata=settings.strata))
        drawn = self._published(draw_dt_bias(heads * dim, strata=settings.strata))
        self.dt_bias = nn.Parameter(settings.start(drawn, self._dt_bias_for))

    def _published(self, dt_bias: Tensor) -> Tensor:
        """Return dt_bias as published, of one whose softplus is log-uniform."""
        rate = F.softplus(dt_bias)
        return (rate / (FLOOR - rate)).log() if self.matched else dt_bias

    def _dt_bias_for(self, rate: float) -> Tensor | float:
        """Return dt_bias at which all decays are e^-rate."""
        if self.safe:
            return math.log(rate / (FLOOR - rate))
        return inverse_softplus(rate / self.A_log.detach().exp()).repeat_interleave(self.dim)

    def forward(self, x: SharedInput) -> Tensor:
        """Return the log decay [B, T, H, K] <= 0 of x [B, T, D], in at least float32."""
        step, A_log = self.project(x), self.A_log[:, None].expand(-1, self.dim).flatten()
        if self.safe:
            wide = at_least_float32(step.dtype)
            log_decay = -FLOOR * torch.sigmoid(A_log.exp() * (step.to(wide) + self.dt_bias))
        else:
            log_decay = decay_gate(step, A_log, self.dt_bias)
        return log_decay.view(*log_decay.shape[:-1], -1, self.dim)


class SignedDecay(ChannelDecay):
    """One decay in (-1, 1) per key channel. arXiv:2609.24797.

        a_t = sign(u_t) (e^-5 + (1 - e^-5) |tanh(u_t / 2)|),   u_t = exp(A_log) (W_up W_down x_t + dt_bias)

    with A = 1 at first, and a_t = e^-d at first for a d that is log-uniform in (0.001, 0.1).

    Args:
        spread: multiply each dt_bias by a random sign, and W_up by 0.1.
        sizes: d_model, rank, heads and dim of `ChannelDecay`.
        settings: the settings that say how it starts.
    """

    def __init__(self, *sizes: int, spread: bool, settings: DrawnGateSettings = AS_PUBLISHED) -> None:
        super().__init__(*sizes, safe=True, settings=settings)
        if spread:
            signs = 2 * torch.randint(2, self.dt_bias.shape, device=CPU) - 1
            self.dt_bias = nn.Parameter(signs * self.dt_bias.detach())
            bound = 0.1 * self.project.up.in_features**-0.5
            nn.init.uniform_(keep(self.project.up).weight, -bound, bound)

    def _published(self, dt_bias: Tensor) -> Tensor:
        return self._dt_bias_for(F.softplus(dt_bias))

    def _dt_bias_for(self, rate: Tensor | float) -> Tensor:
        """Return dt_bias at which all decays are e^-rate."""
        lost = -torch.expm1(-torch.as_tensor(rate, dtype=torch.float64, device=CPU)) / (1 - LEAST)
        return ((2 - lost) / lost).log().float()

    def signed(self, x: SharedInput) -> tuple[Tensor, Tensor]:
        """Return log |a| in at least float32 and whether a is negative, [B, T, H, K], of x [B, T, D]."""
        step = self.project(x).unflatten(-1, (-1, self.dim))
        u = step.to(at_least_float32(step.dtype)) + self.dt_bias.view(-1, self.dim)
        u = self.A_log.exp()[:, None] * u
        return torch.log1p(-2 * (1 - LEAST) * torch.sigmoid(-u.abs())), u < 0

    def forward(self, x: SharedInput) -> Tensor:
        """Return log |a| [B, T, H, K] of x [B, T, D], in at least float32."""
        return self.signed(x)[0]
