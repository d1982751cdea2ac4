"""What every sequence mixer is: x, state -> y, state."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor, nn

from linbench.common.settings import Settings

GENERATIONS = ("softmax", "linear attention", "gates and decay", "delta rule", "softmax revisited", "other")
"""The story in order: keep everything; a sum; a sum that forgets; a sum that is corrected; what of this flows
back; what stands beside."""


@dataclass(frozen=True)
class LayerInfo:
    """The place a layer is built for: its index (0-based) among `count` layers of width `d_model`."""

    index: int
    count: int
    d_model: int


class Out(NamedTuple):
    """What a mixer returns: y [B, T, D], the state after the last token, and what it hands to later layers,
    per token."""

    y: Tensor
    state: Any = None
    handed: Any = None


class StateSize(NamedTuple):
    """Floats that one sequence must carry from token to token, by what they are."""

    recurrent: int = 0
    cache: int = 0
    convolution: int = 0
    shift: int = 0

    @property
    def total(self) -> int:
        """All of them: what sizes are matched on."""
        return sum(self)

    def plus(self, other: "StateSize") -> "StateSize":
        """Part by part."""
        return StateSize(*(a + b for a, b in zip(self, other, strict=True)))


class Rule(NamedTuple):
    """How the optimiser treats a parameter: whether it decays (None: only matrices do), and a factor on the
    learning rate."""

    decay: bool | None = None
    lr_scale: float = 1.0


class Mixer(nn.Module, ABC):
    """A sequence-mixing layer from [B, T, D] to [B, T, D], causal, that can be stopped anywhere and carried
    on.

    The docstring of a variant is its card. Initialisation belongs to the mixer: it is built under a random
    state of its own.
    """

    name: ClassVar[str]
    """What a user calls it."""
    version: ClassVar[int] = 1
    """Raised whenever a change to the file changes results; part of the identity of every cell."""
    families: ClassVar[tuple[str, ...]] = ()
    """The kernel families it computes with, none when it brings its own; their versions, but for those of 0,
    are part of the identity of every cell."""
    generation: ClassVar[str] = "other"
    """Its place in the story, one of `GENERATIONS`, or a word of a user's own."""
    Settings: ClassVar[type[Settings]] = Settings
    controlled: ClassVar[dict[str, Any] | None] = None
    """Settings that replace the published ones in the controlled form, where only the recurrence may differ;
    None: it has none."""
    channel_mixer: ClassVar[str] = "swiglu"
    """What it was published with between its layers, a name in `blocks/channel_mixers.py` or none: what
    `model.channel_mixer=own` gives it."""
    opaque: ClassVar[bool] = False
    """A module from elsewhere: nothing but what a user says of it reaches its constructor."""
    causality: ClassVar[Literal["exact", "rounding"]] = "exact"

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__()
        self.settings = settings
        self.layer = layer

    @abstractmethod
    def forward(self, x: Tensor, state: Any = None, handed: Any = None) -> Out:
        """x [B, T, D], any T >= 1, after what `state` holds. With `state` None the sequence starts here and
        nothing need be kept: to carry on later, start from `init_state`. States are never written in
        place."""

    @abstractmethod
    def init_state(self, batch: int, *, capacity: int) -> Any:
        """The state before the first token: a tree of tensors, batch first. `capacity` is the most tokens it
        will ever see."""

    def prefill(self, x: Tensor, *, capacity: int, handed: Any = None) -> Out:
        """x [B, T, D], the start of sequences of at most `capacity` tokens, with the state to carry on from:
        as `forward` after `init_state`, which a variant that need not look into an empty state may know to do
        faster."""
        out: Out = self(x, self.init_state(x.shape[0], capacity=capacity), handed)
        return out

    def decode(self, x: Tensor, state: Any, handed: Any = None) -> Out:
        """x [B, T, D], the next tokens, mostly one, after what `state` holds: as `forward`, but that it may
        write into the tensors of `state`, so that a cache need not be copied for every token; only what is
        returned may be carried on from. Not differentiated."""
        out: Out = self(x, state, handed)
        return out

    @abstractmethod
    def state_floats(self, seq_len: int) -> StateSize | None:
        """Floats carried after `seq_len` tokens; None when undeclared."""

    @abstractmethod
    def recurrence_flops(self, seq_len: int) -> float | None:
        """Floating-point operations per token, forward, beside those of linear layers and convolutions,
        averaged over a sequence of `seq_len`; None when undeclared."""

    def parameter_rules(self) -> dict[str, Rule]:
        """Return parameters (by their name in this module) that the optimiser must not treat by default.

        Unless a variant says otherwise: those marked `_no_weight_decay`, as Mamba's code and others' mark
        what must not decay.
        """
        return {
            name: Rule(decay=False)
            for name, parameter in self.named_parameters()
            if getattr(parameter, "_no_weight_decay", False)
        }
