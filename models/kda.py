"""Kimi Delta Attention: the delta rule in a memory whose rows decay at rates of their own."""

import math
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.common.settings import ABSENT
from linbench.kernels.decay_gate import decay_gate
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import WriteStrength
from linbench.models.blocks.heads import Readout, head_dims
from linbench.models.blocks.init import CPU, keep
from linbench.models.blocks.linear import LowRank, SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer
from linbench.models.blocks.starting_gates import (
    AS_PUBLISHED,
    DrawnGateSettings,
    draw_a_log,
    draw_dt_bias,
    inverse_softplus,
)
from linbench.models.deltanet import DeltaSettings
from linbench.models.learner import Learner

FLOOR = 5
"""The most that the logarithm of a safe decay loses per token. arXiv:2510.26692."""

LEAST = math.exp(-FLOOR)
"""The least size of a signed decay. arXiv:2609.24797."""


class KDASettings(DrawnGateSettings, DeltaSettings):
    """Settings of KDA. Published: as DeltaNet, with a sigmoid gate on the output."""

    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "sigmoid", description="gate computed from the layer's input, after the norm"
    )
    gate_rank: int | None = Field(
        None,
        ge=1,
        description=(
            "rank of the maps that decay and output gate are computed with; null is the dimension of a head"
        ),
    )
    safe_decay: bool = Field(
        False, description="log decay within (-5, 0) by a sigmoid, instead of a softplus that knows no bound"
    )
    safe_start: Literal["shipped", "matched"] = Field(
        "shipped",
        description=(
            "how a safe decay starts: shipped has the biases of the softplus, matched its decays with A = 1,"
            " memories about five times as long"
        ),
        json_schema_extra={ABSENT: "shipped"},
    )
    signed_decay: Literal["none", "positive", "spread"] = Field(
        "none",
        description=(
            "decays in (-1, 1), of size e^-5 or more (2609.24797); positive says that all start above zero,"
            " spread that each starts with a random sign"
        ),
        json_schema_extra={ABSENT: "none"},
    )

    @model_validator(mode="after")
    def _above_the_floor(self) -> Self:
        signed = self.signed_decay != "none"
        if self.safe_start == "matched" and not self.safe_decay:
            raise ValueError("safe_start = matched is a start of safe_decay = true")
        if signed and self.safe_decay:
            raise ValueError(
                f"safe_decay = true keeps decays positive; signed_decay = {self.signed_decay} has the same"
                " floor for their size"
            )
        if (self.safe_decay or signed) and self.rate is not None and self.rate >= FLOOR:
            name = "signed_decay" if signed else "safe_decay"
            raise ValueError(
                f"forget_bias = {self.forget_bias} keeps less of a token than {name}, e^-{FLOOR}"
            )
        return self


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


class KDA(MatrixMixer):
    """Kimi Delta Attention: the delta rule in a memory whose rows decay at rates of their own.

        S_t = (I - beta_t k_t k_t^T) diag(a_t) S_{t-1} + beta_t k_t v_t^T
        o_t = S_t^T q_t / sqrt(K)

    The decay a_t is Gated DeltaNet's with a number for each key channel. It acts first, so the delta rule
    predicts from what is left. Kimi Team 2025, arXiv:2510.26692.

    State: H K V, constant in length; the convolution keeps 3 inputs per channel.

    Known for: overwriting one association (the delta rule) while each key channel keeps for as long as it
    needs to; published to learn recall and stacks sooner than Gated DeltaNet. A softplus has no bound, so a
    channel can be wiped out at once; `safe_decay` is the published variant that keeps at least e^-5, whose
    published start forgets about five times sooner; `safe_start=matched` starts as the softplus does. With
    `signed_decay` decays may be negative (Complex KDA, Siems et al. 2026, arXiv:2609.24797). Together with
    `neg_eigval` a token can then turn two channels by any angle, so one layer tracks some groups that do not
    commute. Published runs of such tasks have `conv=0`, and so no SiLU on q, k and v.

    Differences: neither map of a gate has a bias; published code gives the output gate one, the paper does
    not. Decays are drawn in strata (docs/decisions/0003); the output projection starts at zero
    (docs/decisions/0002).
    """

    name = "kda"
    kernel_families = (*MatrixMixer.kernel_families, "decay_gate")
    generation = "delta rule"
    learner = Learner(
        loss="squared error",
        memory="matrix",
        optimiser="one gradient step",
        retention="decay per key channel and token",
    )
    Settings = KDASettings
    decays = True
    delta = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        rank, key_dim = settings.gate_rank or self.project.head_dim, self.project.key_dim
        self.make_strengths()
        sizes = layer.d_model, rank, settings.heads, key_dim
        self.decay = (
            ChannelDecay(
                *sizes, safe=settings.safe_decay, matched=settings.safe_start == "matched", settings=settings
            )
            if settings.signed_decay == "none"
            else SignedDecay(*sizes, spread=settings.signed_decay == "spread", settings=settings)
        )

    def make_strengths(self) -> None:
        """Make beta. Variants with other strengths override it."""
        self.beta = WriteStrength(
            self.layer.d_model, self.settings.heads, neg_eigval=self.settings.neg_eigval
        )

    def make_readout(self) -> Readout:
        """Return a readout whose gate has low rank."""
        _, value_dim = head_dims(self.settings, self.layer.d_model)
        return Readout(self.settings, self.layer, gate_rank=self.settings.gate_rank or value_dim)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation.

        With P_t the product of all signs so far, diag(P_t) S_t is the memory of P q and P k whose decays are
        positive.
        """
        update = Delta(self.beta(x))
        if not isinstance(self.decay, SignedDecay):
            return matrix_state(q, k, v, log_decay=self.decay(x), update=update, state=memory)
        log_size, negative = self.decay.signed(x)
        sign = (1 - 2 * (negative.cumsum(dim=1) % 2)).to(q.dtype)
        shared = v.shape[2] // k.shape[2]
        q, k = (sign * each.repeat_interleave(shared, dim=2) for each in (q, k))
        o, memory = matrix_state(q, k, v, log_decay=log_size, update=update, state=memory)
        return o, sign[:, -1, :, :, None] * memory

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the decay's parameters."""
        return {"decay.A_log": Rule(decay=False), "decay.dt_bias": Rule(decay=False)}
