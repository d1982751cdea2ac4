"""Momentum DeltaNet: a gated delta rule whose corrections go on, as gradient steps with momentum do."""

import math
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.kernels.dtypes import to_float32
from linbench.kernels.momentum_delta import flops_per_token, momentum_delta
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import ScalarDecay
from linbench.models.blocks.linear import Linear, SharedInput
from linbench.models.blocks.starting_gates import draw
from linbench.models.gated_deltanet import GatedDeltaNet, GatedDeltaNetSettings

FLOOR = 2
"""The most that the logarithm of the momentum loses per token. arXiv:2605.05838, code."""

LEAST = 1e-3
"""Least start of what is learned as a logarithm. Published code draws from 0 on. Chosen."""


class MomentumDeltaNetSettings(GatedDeltaNetSettings):
    """Settings of Momentum DeltaNet. Published: as Gated DeltaNet, with a sigmoid gate on the output."""

    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "sigmoid", description="gate computed from the layer's input, after the norm"
    )
    neg_eigval: Literal[False] = Field(
        False, description="false: a step is in (0, 2) already, and a memory with momentum can oscillate"
    )

    @model_validator(mode="after")
    def _above_the_floor(self) -> Self:
        if self.rate is not None and self.rate >= FLOOR:
            raise ValueError(f"forget_bias = {self.forget_bias} keeps less of a momentum than e^-{FLOOR}")
        return self


class MomentumDeltaNet(GatedDeltaNet):
    """Momentum DeltaNet: a gated delta rule whose corrections go on, as gradient steps with momentum do.

        N_t = m_t N_{t-1} + e_t k_t (v_t - a_t S_{t-1}^T k_t)^T
        S_t = a_t S_{t-1} + b_t N_t
        o_t = S_t^T (q_t - d k_t) / sqrt(K)
        a_t = cos^2(h_t) a'_t,  b_t = sin^2(h_t) b'_t,  tan(h_t) = e_t f

    a' is Gated DeltaNet's decay and m another of its kind, at least e^-2; e = 1 + tanh(w . x / sqrt(D)), and
    b' is a sigmoid; f and d are learned. All are one per head, d one per head of keys. Huang et al. 2026,
    arXiv:2605.05838.

    State: 2 H K V, constant in length: S and N. The convolution keeps 3 inputs per channel.

    Known for: second-order dynamics. Along a key S and N have a 2 x 2 transition of determinant a m, whose
    eigenvalues may be complex: the memory then oscillates, without strengths above one. The angle h keeps
    them inside of the unit circle. Without momentum, m = 0, it is Gated DeltaNet of strength b e. Before
    training a is small, 0.2 in the median: S forgets within a token or two, and N is the memory that lasts.

    Differences: q and k are normed before q is corrected, as in `comba`; published code norms q after. A and
    what f and d start from are drawn from small numbers on, not from zero, whose logarithm is minus infinity,
    and in strata (docs/decisions/0003). The output projection starts at zero (docs/decisions/0002).
    `forget_bias` is where a' and m start.
    """

    name = "momentum_deltanet"
    kernel_families = (*GatedDeltaNet.kernel_families, "momentum_delta")
    generation = "test-time training"
    learner = GatedDeltaNet.learner._replace(
        memory="matrix, and one more for the momentum", optimiser="one gradient step with momentum"
    )
    Settings = MomentumDeltaNetSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        heads, strata = settings.heads, settings.strata
        self.momentum = ScalarDecay(layer.d_model, heads, settings)
        if settings.rate is None:
            with torch.no_grad():
                self.momentum.dt_bias.copy_(self.decay.dt_bias)
        self.step = Linear(layer.d_model, heads)
        self.log_factor = nn.Parameter(draw(LEAST, 4, heads, strata=strata).log())
        self.log_correction = nn.Parameter(draw(LEAST, 1, self.key_heads, strata=strata).log())

    @property
    def extra_columns(self) -> int:
        """V, for N beside S."""
        return self.project.value_dim

    def log_momentum(self, x: SharedInput) -> Tensor:
        """Return log m [B, T, H]."""
        log_momentum: Tensor = self.momentum(x)
        return log_momentum.clamp(min=-FLOOR)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation; S and N lie side by side."""
        step = 1 + torch.tanh(to_float32(self.step(x)) / math.sqrt(self.layer.d_model))
        square = (step * self.log_factor.exp()).square()  # of the tangent
        values = self.project.value_dim
        o, after = momentum_delta(
            (q - self.log_correction.exp()[:, None] * k).to(q.dtype),
            k,
            v,
            log_decay=self.decay(x) - torch.log1p(square),
            log_momentum=self.log_momentum(x),
            step=step,
            share=square / (1 + square) * self.beta(x),
            state=None if memory is None else (memory[..., :values], memory[..., values:]),
        )
        return o, torch.cat(after, dim=-1)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence, token by token, and of the feature map."""
        heads, key_dim, _ = self.memory_shape
        recurrence = flops_per_token(heads=heads, key_dim=key_dim, value_dim=self.project.value_dim)
        return recurrence + self.project.feature_flops()

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the parameters of the decays, and for f and d."""
        names = ("momentum.A_log", "momentum.dt_bias", "log_factor", "log_correction")
        return {**super().parameter_rules(), **dict.fromkeys(names, Rule(decay=False))}
