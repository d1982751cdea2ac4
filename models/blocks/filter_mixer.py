"""Layers whose memory is a linear filter that is the same at all times, with what surrounds it."""

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.models.base import LayerInfo, Mixer, Out, Rule, StateSize
from linbench.models.blocks.convolution import INPUT_CONVOLUTION, InputConvolution
from linbench.models.blocks.diagonal_ssm import Modes
from linbench.models.blocks.heads import FAMILIES
from linbench.models.blocks.init import BranchSettings, zero_init
from linbench.models.blocks.linear import Affine
from linbench.models.blocks.norms import RMSNorm
from linbench.models.blocks.shared_modes import SharedModes


class FilterSettings(BranchSettings):
    """Settings of what surrounds a filter. Published: a skip, GELU and a gated linear unit, nothing else."""

    conv: int = INPUT_CONVOLUTION
    skip: bool = Field(True, description="whether D x goes past the memory")
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the output, over all channels")
    output: Literal["glu", "linear"] = Field(
        "glu", description="what follows: GELU and a gated linear unit, or a linear map alone"
    )


class FilterState(NamedTuple):
    """State of a filter.

    memory: [B, ...] in at least float32, real and imaginary part of each mode; None if none was kept. conv:
    what the short convolution remembers [B, kernel-1, D], None without one.
    """

    memory: Tensor | None
    conv: Tensor | None


class FilterMixer(Mixer):
    """A mixer with a filter, which a variant makes in `make_memory`."""

    kernel_families: ClassVar[tuple[str, ...]] = FAMILIES
    generation = "gates and decay"
    Settings = FilterSettings
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
        self.memory = self.make_memory()
        self.skip = nn.Parameter(torch.randn(width)) if settings.skip else None
        self.norm = RMSNorm(width) if settings.output_norm == "rms" else None
        self.gated = settings.output == "glu"
        linear = Affine(width, 2 * width if self.gated else width, bias=self.gated)
        self.linear = zero_init(linear, silent=settings.silent)

    @abstractmethod
    def make_memory(self) -> Modes | SharedModes:
        """Return the filter."""

    def forward(self, x: Tensor, state: FilterState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        u, conv = self.conv(x, state and state.conv)
        o, memory = self.memory(u, state and state.memory)
        if self.skip is not None:
            o = o + self.skip * u
        o = o.to(u.dtype)
        if self.norm is not None:
            o = self.norm(o)
        y = F.glu(self.linear(F.gelu(o)), dim=-1) if self.gated else self.linear(o)
        return Out(y, FilterState(memory, conv), cross_layer)

    def init_state(self, batch: int, *, capacity: int) -> FilterState:
        """Return zeros; the size does not depend on `capacity`."""
        return FilterState(self.memory.init_state(batch), self.conv.init_state(batch))

    def state_floats(self, seq_len: int) -> StateSize:
        """Return the floats of the memory, and (kernel - 1) D for the convolution."""
        return StateSize(recurrent=math.prod(self.memory.state_shape), convolution=self.conv.state_floats())

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the filter and the skip."""
        return self.memory.flops_per_token() + 2.0 * self.layer.d_model * (self.skip is not None)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the filter and the skip."""
        return {
            name: Rule(decay=False)
            for name, _ in self.named_parameters()
            if name.startswith("memory.") or name == "skip"
        }
