"""The block of Mamba's kind: every channel has a small vector that the token writes, forgets and reads."""

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import at_least_float32, to_float32
from linbench.models.base import LayerInfo, Mixer, Out, StateSize
from linbench.models.blocks.convolution import InputConvolution
from linbench.models.blocks.heads import inner_width
from linbench.models.blocks.init import BranchSettings, keep, zero_init
from linbench.models.blocks.linear import Linear, LowRank, SharedInput, linear
from linbench.models.blocks.norms import RMSNorm


class SelectiveSettings(BranchSettings):
    """Settings of a block of Mamba's kind."""

    expand: float = Field(2.0, gt=0, description="how many channels there are inside, over d_model")
    states: int = Field(16, ge=1, description="how many numbers each channel remembers")
    step_rank: int | None = Field(
        None,
        ge=1,
        description=(
            "rank of the map from a token to the steps of all channels; null is d_model / 16, rounded up"
        ),
    )
    conv: int = Field(4, ge=0, le=4, description="kernel of the short convolution on x, with SiLU; 0 is none")
    conv_bias: bool = Field(True, description="whether the convolution, where there is one, has biases")
    skip: bool = Field(True, description="whether D x goes past the memory")
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the output, over all channels")
    output_gate: Literal["none", "swish"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )


class SelectiveState(NamedTuple):
    """State of a block of Mamba's kind.

    memory: [B, W, N] in at least float32. conv: what the short convolution remembers [B, kernel-1, W], None
    without one.
    """

    memory: Tensor
    conv: Tensor | None


class SelectiveMixer(Mixer):
    """A mixer that remembers N numbers for each of W channels.

    A variant says what steps start at, and computes its equation in `recur`.
    """

    channel_mixer = "none"
    Settings = SelectiveSettings
    controlled: ClassVar[dict[str, Any] | None] = {
        "expand": 1.0,
        "conv": 4,
        "conv_bias": False,
        "skip": False,
        "output_norm": "rms",
        "output_gate": "none",
    }

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        width, states = inner_width(settings.expand, layer.d_model), settings.states
        self.memory_shape = width, states
        self.inner = Linear(layer.d_model, width)
        self.gate = Linear(layer.d_model, width) if settings.output_gate == "swish" else None
        self.conv = InputConvolution(width, settings.conv, bias=settings.conv_bias)
        self.step = LowRank(width, settings.step_rank or math.ceil(layer.d_model / 16), width, bias=True)
        self.step.up.bias = nn.Parameter(self.start_steps(width))
        keep(self.step.up)
        self.write, self.read = Linear(width, states), Linear(width, states)
        self.start_decays()
        self.skip = nn.Parameter(torch.ones(width)) if settings.skip else None
        self.norm = RMSNorm(width) if settings.output_norm == "rms" else None
        self.linear = zero_init(Linear(width, layer.d_model), silent=settings.silent)

    @abstractmethod
    def start_steps(self, width: int) -> Tensor:
        """Return what the bias of the steps starts at [W]."""

    def start_decays(self) -> None:
        """Add the parameters of decays, of which there are none unless a variant has some."""

    @abstractmethod
    def recur(self, u: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return what is read [B, T, W], without the skip, and the memory.

        Args:
            u: [B, T, W], x of the equation.
            memory: [B, W, N]; None stands for zeros.
        """

    def select(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits of steps [B, T, W], in at least float32, what to write and what to read.

        Both are [B, T, N].
        """
        shared = SharedInput(u, [self.step.down, self.write, self.read])
        low, up = self.step.down(shared), self.step.up
        # the bias is added in float32: it has digits that 16 bits do not hold
        logits = to_float32(linear(low, [up.weight])[0]) + up.bias
        return logits, self.write(shared), self.read(shared)

    def forward(self, x: Tensor, state: SelectiveState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        given = SharedInput(x, [self.inner, *([] if self.gate is None else [self.gate])])
        u, conv = self.conv(self.inner(given), state and state.conv)
        o, memory = self.recur(u, state and state.memory)
        if self.skip is not None:
            o = o + self.skip.to(u.dtype) * u
        if self.norm is not None:
            o = self.norm(o)
        if self.gate is not None:
            o = o * F.silu(self.gate(given))
        return Out(self.linear(o), SelectiveState(memory, conv), cross_layer)

    def init_state(self, batch: int, *, capacity: int) -> SelectiveState:
        """Return zeros; the size does not depend on `capacity`."""
        weight = self.inner.weight
        return SelectiveState(
            weight.new_zeros(batch, *self.memory_shape, dtype=at_least_float32(weight.dtype)),
            self.conv.init_state(batch),
        )

    def state_floats(self, seq_len: int) -> StateSize:
        """Return W N for the memory and (kernel - 1) W for the convolution."""
        return StateSize(recurrent=math.prod(self.memory_shape), convolution=self.conv.state_floats())

    def around_flops(self) -> int:
        """Return the operations of the skip and the gate."""
        return (2 * (self.skip is not None) + (self.gate is not None)) * self.memory_shape[0]
