"""S4D: a time-invariant filter for each channel, made of modes that oscillate and fade."""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.models.base import LayerInfo, Mixer, Out, Rule, StateSize
from linbench.models.blocks.convolution import INPUT_CONVOLUTION, InputConvolution
from linbench.models.blocks.diagonal_ssm import Frequencies, Modes
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.init import BranchSettings, zero_init
from linbench.models.blocks.linear import Affine
from linbench.models.blocks.norms import RMSNorm
from linbench.models.blocks.starting_gates import NO_STRATA
from linbench.models.learner import Learner


class S4DSettings(BranchSettings):
    """Settings of S4D.

    Published: 64 states for each channel, a skip, GELU and a gated linear unit; no convolution, no norm.
    """

    states: int = Field(
        64, ge=2, multiple_of=2, description="how many numbers each channel remembers, two for a mode"
    )
    modes: Frequencies = Field(
        "lin", description="frequencies at first: lin is pi n; inv N / pi (N / (2 n + 1) - 1)"
    )
    strata: bool = NO_STRATA
    conv: int = INPUT_CONVOLUTION
    skip: bool = Field(True, description="whether D x goes past the memory")
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the output, over all channels")
    output: Literal["glu", "linear"] = Field(
        "glu", description="what follows: GELU and a gated linear unit, or a linear map alone"
    )


class S4DState(NamedTuple):
    """State of S4D.

    memory: [B, D, N] in at least float32, real and imaginary part of each mode. conv: what the short
    convolution remembers [B, kernel-1, D], None without one.
    """

    memory: Tensor
    conv: Tensor | None


class S4D(Mixer):
    """S4D: a time-invariant filter for each channel, made of modes that oscillate and fade.

        h_t = e^{d l} h_{t-1} + (e^{d l} - 1) / l x_t
        y_t = 2 Re(C . h_t) + D x_t

    for each channel, with a step d, modes l = -e^a + i b, and C. Gu et al. 2022, arXiv:2206.11893, after S4,
    2021, arXiv:2111.00396.

    State: D N, two numbers for each of N / 2 modes, constant in length.

    Known for: long memories of smooth signals. It is the same at all times: no token decides what is written
    or kept, so selection is left to what stands between layers (arXiv:2312.00752).

    Differences: GELU and a gated linear unit follow, as published, whose map starts at zero
    (docs/decisions/0002). Of the source's initial modes S4D-Lin and S4D-Inv are here. The source trains modes
    and steps at a rate of their own, 0.001, and without weight decay; here they have no decay, and the common
    rate. In the controlled form there is no skip, and a linear map follows the norm.
    """

    name = "s4d"
    kernel_families = FAMILIES
    generation = "gates and decay"
    learner = Learner(
        loss="none: every input is written alike",
        memory="modes per channel: a fixed linear filter",
        optimiser="none: inputs are summed",
        retention="constant decay and rotation per mode",
    )
    Settings = S4DSettings
    controlled: ClassVar[dict[str, Any] | None] = {
        "conv": 4,
        "skip": False,
        "output_norm": "rms",
        "output": "linear",
    }

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        width = layer.d_model
        self.conv = InputConvolution(width, settings.conv)
        self.memory = Modes(width, settings.states, settings.modes, strata=settings.strata)
        self.skip = nn.Parameter(torch.randn(width)) if settings.skip else None
        self.norm = RMSNorm(width) if settings.output_norm == "rms" else None
        self.gated = settings.output == "glu"
        linear = Affine(width, 2 * width if self.gated else width, bias=self.gated)
        self.linear = zero_init(linear, silent=settings.silent)

    def forward(self, x: Tensor, state: S4DState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        u, conv = self.conv(x, state and state.conv)
        o, memory = self.memory(u, state and state.memory)
        if self.skip is not None:
            o = o + self.skip * u
        o = o.to(u.dtype)
        if self.norm is not None:
            o = self.norm(o)
        y = F.glu(self.linear(F.gelu(o)), dim=-1) if self.gated else self.linear(o)
        return Out(y, S4DState(memory, conv), cross_layer)

    def init_state(self, batch: int, *, capacity: int) -> S4DState:
        """Return zeros; the size does not depend on `capacity`."""
        return S4DState(self.memory.init_state(batch), self.conv.init_state(batch))

    def state_floats(self, seq_len: int) -> StateSize:
        """Return D N for the memory and (kernel - 1) D for the convolution."""
        return StateSize(
            recurrent=self.layer.d_model * self.settings.states, convolution=self.conv.state_floats()
        )

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the modes and the skip."""
        return self.memory.flops_per_token() + 2.0 * self.layer.d_model * (self.skip is not None)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the state space."""
        return {
            name: Rule(decay=False)
            for name, _ in self.named_parameters()
            if name.startswith("memory.") or name == "skip"
        }
