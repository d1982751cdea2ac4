"""Mamba-2: a state space whose step decides both how much is written and how much is forgotten."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.common.settings import ABSENT
from linbench.kernels.gated_product import scale_rows, silu_gate
from linbench.kernels.matrix_state import matrix_state
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import StepDecay
from linbench.models.blocks.heads import OUTPUT_NORM, HeadProjection, Readout
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings
from linbench.models.blocks.shared_keys import shared_heads
from linbench.models.blocks.starting_gates import DrawnGateSettings
from linbench.models.learner import Learner


class StateSpaceSettings(DrawnGateSettings, MatrixSettings):
    """Settings that Mamba-2 and its successor have alike.

    Published: twice as wide inside, one B and C for all heads, a skip, a gate.
    """

    expand_v: float = Field(
        2.0,
        gt=0,
        description="inner width over d_model; with head_dim given, expand_v / expand_k * head_dim per head",
    )
    groups: int | None = Field(
        1,
        ge=1,
        description="how many B and C (k and q) there are, each for as many heads; null is one for each head",
    )
    key_heads: None = Field(
        None, description="groups says how many heads of q and k there are", json_schema_extra={ABSENT: None}
    )
    skip: bool = Field(True, description="whether D x goes past the memory")


class Mamba2Settings(StateSpaceSettings):
    """Settings of Mamba-2.

    Published: a convolution with biases, no norm of B and C, a gate before a norm over a group's heads.
    """

    conv_bias: bool = Field(True, description="whether the convolution has biases")
    qk_norm: Literal["none", "l2", "rms"] = Field(
        "none", description="norm of C and B (q and k), the last thing before the recurrence"
    )
    output_norm: Literal["none", "rms", "rms_all", "rms_groups", "layer"] = Field(  # type: ignore[assignment]
        "rms_all",
        description=(
            f"{OUTPUT_NORM.description}; rms_groups over the heads of each group, by default where there are"
            " several groups"
        ),
    )
    output_gate: Literal["none", "swish"] = Field(
        "swish", description="gate computed from the layer's input, before the norm"
    )

    @model_validator(mode="before")
    @classmethod
    def _norm_of_groups(cls, values: dict[str, Any]) -> dict[str, Any]:
        several = str(values.get("groups", 1)) != "1"
        if several:
            return {"output_norm": "rms_groups", **values}
        # one group is all heads: one name for it
        return {**values, "output_norm": "rms_all"} if values.get("output_norm") == "rms_groups" else values


class GateFirst(Readout):
    """Map o [B, T, H, V] to y [B, T, D]: gate, then norm, then linear."""

    def forward(self, o: Tensor, x: Tensor | SharedInput, added: Tensor | None = None) -> Tensor:
        """Return y [B, T, D], as `Readout.forward` does."""
        if self.gate is not None:
            o = silu_gate(o, self.gate(x).view(o.shape))
        return self.norm_gate_project(o, added=added)


class Mamba2(MatrixMixer):
    """Mamba-2: a state space whose step decides both how much is written and how much is forgotten.

        S_t = exp(A d_t) S_{t-1} + B_t (d_t x_t)^T
        y_t = S_t^T C_t + D x_t
        d_t = softplus(W u_t + b)   for each head and token u_t

    C, B and x are q, k and v. Dao & Gu 2024, arXiv:2405.21060.

    State: H K V, constant in length; the convolution keeps 3 inputs per channel.

    Known for: a scalar decay per token that can be computed with matrix products. All heads share one key
    space, as published; with several groups each group has one, and its heads are normed together. A step
    that writes little also forgets little. It cannot erase one association alone, and with positive decays it
    cannot track parity.

    Differences: published models have states of 128 for heads of 64, and no channel mixer between their
    layers (`channel_mixer=own`); heads here are few, with a state as wide as the model over the heads, and
    decays are drawn in strata (docs/decisions/0003). In the controlled form every head has a B and a C of its
    own, and there is no skip: no other memory has one, and steps that start small would leave what is read
    far below it. The output projection starts at zero (docs/decisions/0002).
    """

    name = "mamba2"
    channel_mixer = "none"
    generation = "gates and decay"
    learner = Learner(
        loss="inner product",
        memory="matrix",
        optimiser="one gradient step of length d",
        retention="decay per head and token, tied to d",
    )
    Settings = Mamba2Settings
    controlled: ClassVar[dict[str, Any] | None] = {
        **(MatrixMixer.controlled or {}),
        "groups": None,
        "conv_bias": False,
        "skip": False,
    }
    decays = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.decay = StepDecay(layer.d_model, settings.heads, settings)
        self.skip = nn.Parameter(torch.ones(settings.heads)) if settings.skip else None

    @property
    def key_heads(self) -> int:
        """Heads of C and B (q and k): the groups."""
        return shared_heads(self.settings, "groups")

    def make_projection(self) -> HeadProjection:
        """Return a projection with C and B for each group of heads and x for each head.

        They take the places of q, k and v.
        """
        return self.head_projection(conv_bias=self.settings.conv_bias)

    def make_readout(self) -> Readout:
        """Return a readout with the gate before the norm."""
        return GateFirst(self.settings, self.layer, groups=self.key_heads)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        log_decay, step = self.decay.with_step(x)
        o, memory = matrix_state(q, k, scale_rows(v, step), log_decay=log_decay, scale=1.0, state=memory)
        return self.add_skip(o, v), memory

    def add_skip(self, o: Tensor, v: Tensor) -> Tensor:
        """Return o + D v [B, T, H, V], or o if there is no skip."""
        return o if self.skip is None else o + scale_rows(v, self.skip.expand(v.shape[:-1]))

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence, of scaling each value by its step, and of the skip."""
        heads, _, value_dim = self.memory_shape
        return super().recurrence_flops(seq_len) + (1 if self.skip is None else 3) * heads * value_dim

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the decay's parameters and the skip."""
        return {
            name: Rule(decay=False)
            for name in ("decay.A_log", "decay.dt_bias", *([] if self.skip is None else ["skip"]))
        }
