"""Layers that remember vectors: a short convolution, a recurrence of each channel, a norm and a map."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.models.base import LayerInfo, Mixer, Out, StateSize
from linbench.models.blocks.convolution import INPUT_CONVOLUTION, InputConvolution
from linbench.models.blocks.heads import FAMILIES, inner_width
from linbench.models.blocks.init import BranchSettings, zero_init
from linbench.models.blocks.linear import Linear
from linbench.models.blocks.norms import RMSNorm


class VectorSettings(BranchSettings):
    """Settings of a layer that remembers vectors. By default nothing is around the recurrence."""

    expand: float = Field(1.0, gt=0, description="width of the memory over d_model")
    conv: int = INPUT_CONVOLUTION
    output_norm: Literal["none", "rms"] = Field("none", description="norm of the recurrence's output")


class VectorState(NamedTuple):
    """State of a layer that remembers vectors.

    memory: [B, N, W], N vectors, in at least float32. conv: what the short convolution remembers [B,
    kernel-1, D], None without one.
    """

    memory: Tensor
    conv: Tensor | None


class VectorMixer(Mixer):
    """A mixer that remembers N vectors of W numbers.

    A variant makes its maps in `add_maps`, and computes its equation in `recur`.
    """

    kernel_families: ClassVar[tuple[str, ...]] = ("scan", *FAMILIES)
    Settings = VectorSettings
    controlled: ClassVar[dict[str, Any] | None] = {"expand": 1.0, "conv": 4, "output_norm": "rms"}
    vectors: ClassVar[int] = 1
    """The number N of vectors."""

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.width = inner_width(settings.expand, layer.d_model)
        self.conv = self.make_convolution()
        self.add_maps()
        self.norm = RMSNorm(self.width) if settings.output_norm == "rms" else None
        self.linear = zero_init(Linear(self.width, layer.d_model), silent=settings.silent)

    def make_convolution(self) -> InputConvolution:
        """Return the convolution, by default on the layer's input."""
        return InputConvolution(self.layer.d_model, self.settings.conv)

    @abstractmethod
    def add_maps(self) -> None:
        """Add the parameters of the recurrence."""

    @abstractmethod
    def recur(self, u: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return the recurrence's output [B, T, W] and the memory.

        Args:
            u: what the convolution returns [B, T, D].
            memory: [B, N, W] in at least float32.
        """

    def forward(self, x: Tensor, state: VectorState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        y, state = self.remember(x, state)
        return Out(self.linear(y), state, cross_layer)

    def remember(self, x: Tensor, state: VectorState | None) -> tuple[Tensor, VectorState]:
        """Return the normalised output of the recurrence [B, T, W] for x [B, T, D], and the state."""
        u, conv = self.conv(x, state and state.conv)
        wide = at_least_float32(u.dtype)
        shape = len(u), self.vectors, self.width
        y, memory = self.recur(u, u.new_zeros(shape, dtype=wide) if state is None else state.memory.to(wide))
        y = y.to(u.dtype)
        return y if self.norm is None else self.norm(y), VectorState(memory, conv)

    def init_state(self, batch: int, *, capacity: int) -> VectorState:
        """Return zeros; the size does not depend on `capacity`."""
        weight = self.linear.weight
        memory = weight.new_zeros(batch, self.vectors, self.width, dtype=at_least_float32(weight.dtype))
        return VectorState(memory, self.conv.init_state(batch))

    def state_floats(self, seq_len: int) -> StateSize:
        """Return N W for the memory and (kernel - 1) D for the convolution."""
        return StateSize(recurrent=self.vectors * self.width, convolution=self.conv.state_floats())
