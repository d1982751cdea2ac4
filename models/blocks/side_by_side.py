"""Attention with a whole mixer beside it, which reads the layer's input through maps of its own."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from linbench.models.attention import Attention
from linbench.models.base import LayerInfo, Mixer, Rule, StateSize
from linbench.models.blocks.attention_settings import AttentionSettings
from linbench.models.blocks.beside_attention import BesideAttention, FastOut
from linbench.models.blocks.linear import Linear, SharedInput
from linbench.models.blocks.starting_gates import DrawnGateSettings


class SideBySideSettings(DrawnGateSettings, AttentionSettings):
    """Settings of attention beside a state space. Published: both as they are alone."""

    ssm_conv: int = Field(
        4, ge=0, le=4, description="kernel of the short convolution of the state space, with SiLU; 0 is none"
    )
    ssm_conv_bias: bool = Field(True, description="whether that convolution, where there is one, has biases")
    ssm_skip: bool = Field(True, description="whether D x goes past the memory of the state space")
    ssm_gate: Literal["none", "swish"] = Field(
        "swish", description="gate on what the state space reads, computed from the layer's input"
    )


class SideBySide(BesideAttention):
    """Attention with another mixer beside it. A variant makes that mixer and joins the two."""

    generation = "softmax revisited"
    controlled: ClassVar[dict[str, Any] | None] = {
        **(Attention.controlled or {}),
        "ssm_conv": 4,
        "ssm_conv_bias": False,
        "ssm_skip": False,
        "ssm_gate": "none",
    }

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.beside: Any = self.make_beside()

    @abstractmethod
    def make_beside(self) -> Mixer:
        """Return the mixer beside attention, whose state does not grow."""

    def beside_settings(self) -> dict[str, Any]:
        """Return the settings that every state space beside attention has, by their names."""
        settings = self.settings
        return {
            "conv": settings.ssm_conv,
            "conv_bias": settings.ssm_conv_bias,
            "skip": settings.ssm_skip,
            "output_gate": settings.ssm_gate,
            "forget_bias": settings.forget_bias,
            "strata": settings.strata,
        }

    def share(self, x: Tensor) -> SharedInput:
        """Return the input of attention's maps. The other mixer shares it among its own."""
        own = [part for parts in (self.project, self.readout) for part in parts.modules()]
        return SharedInput(
            x, [part for part in own if isinstance(part, Linear) and part is not self.readout.linear]
        )

    def read_memory(self, x: SharedInput, heads: Any, positions: Tensor, memory: Any, seen: Any) -> FastOut:
        """Return the output of the mixer beside attention, and its state after it."""
        y, state, _ = self.beside(x.x, memory)
        return FastOut(y, state)

    def initial_memory(self, like: Tensor, batch: int) -> Any:
        """Return the state of the mixer beside attention before the first token."""
        return self.beside.init_state(batch, capacity=1)

    def state_floats(self, seq_len: int) -> StateSize:
        """Return those of attention and of the mixer beside it."""
        own = Attention.state_floats(self, seq_len)
        return own.plus(self.beside.state_floats(seq_len))

    def memory_floats(self) -> int:
        """Return how many floats the mixer beside attention keeps, without its convolution."""
        return int(self.beside.state_floats(1).recurrent)

    def memory_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence beside attention for a token."""
        return float(self.beside.recurrence_flops(seq_len))

    def memory_rules(self) -> dict[str, Rule]:
        """Return the rules of the parameters of the mixer beside attention."""
        return {f"beside.{name}": rule for name, rule in self.beside.parameter_rules().items()}
