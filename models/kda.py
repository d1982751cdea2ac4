"""Kimi Delta Attention: the delta rule in a memory whose rows decay at rates of their own."""

import math
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.kernels.decay_gate import decay_gate
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import WriteStrength
from linbench.models.blocks.heads import Readout, head_dims
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

    @model_validator(mode="after")
    def _above_the_floor(self) -> Self:
        if self.safe_decay and self.rate is not None and self.rate >= FLOOR:
            raise ValueError(
                f"forget_bias = {self.forget_bias} keeps less of a token than safe_decay, e^-{FLOOR}"
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
        settings: DrawnGateSettings = AS_PUBLISHED,
    ) -> None:
        super().__init__()
        self.dim, self.safe = dim, safe
        self.project = LowRank(d_model, rank, heads * dim)
        self.A_log = nn.Parameter(torch.zeros(heads) if safe else draw_a_log(heads, strata=settings.strata))
        self.dt_bias = nn.Parameter(
            settings.start(draw_dt_bias(heads * dim, strata=settings.strata), self._dt_bias_for)
        )

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


class KDA(MatrixMixer):
    """Kimi Delta Attention: the delta rule in a memory whose rows decay at rates of their own.

        S_t = (I - beta_t k_t k_t^T) diag(a_t) S_{t-1} + beta_t k_t v_t^T
        o_t = S_t^T q_t / sqrt(K)

    The decay a_t is Gated DeltaNet's with a number for each key channel. It acts first, so the delta rule
    predicts from what is left. Kimi Team 2025, arXiv:2510.26692.

    State: H K V, constant in length; the convolution keeps 3 inputs per channel.

    Known for: overwriting one association (the delta rule) while each key channel keeps for as long as it
    needs to; published to learn recall and stacks sooner than Gated DeltaNet. A softplus has no bound, so a
    channel can be wiped out at once; `safe_decay` is the published variant that keeps at least e^-5.

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
        self.decay = ChannelDecay(
            layer.d_model, rank, settings.heads, key_dim, safe=settings.safe_decay, settings=settings
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
        """Compute the equation."""
        return matrix_state(q, k, v, log_decay=self.decay(x), update=Delta(self.beta(x)), state=memory)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the decay's parameters."""
        return {"decay.A_log": Rule(decay=False), "decay.dt_bias": Rule(decay=False)}
