"""Base class of RWKV-5 to 7: token shift, one matrix per head, a group norm and a gate."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.matrix_state import flops_per_token
from linbench.models.base import LayerInfo, Mixer, Rule, StateSize
from linbench.models.blocks.heads import (
    CONTROLLED,
    FAMILIES,
    NO_CONVOLUTION,
    OUTPUT_NORM,
    HeadProjection,
    OutputNorm,
    Readout,
    share_input,
)
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.shared_keys import SharedKeySettings, shared_heads, shares_values
from linbench.models.blocks.starting_gates import GateSettings
from linbench.models.blocks.token_shift import TokenShift


class ShiftSettings(GateSettings, SharedKeySettings):
    """Settings of RWKV's matrix layers.

    Published: token shift, no convolution, no norm of q and k, group norm of the output.
    """

    conv: int = NO_CONVOLUTION
    qk_norm: Literal["none", "l2", "rms"] = Field(
        "none", description="norm of q and k per head, the last thing before the recurrence"
    )
    output_norm: OutputNorm = Field("layer", description=OUTPUT_NORM.description)
    token_shift: bool = Field(
        True, description="each projection reads its own mixture of a token and the one before"
    )


class ShiftState(NamedTuple):
    """State of a layer with token shift.

    memory: [B, H, K, V] in at least float32. conv: what the short convolution remembers [B, kernel-1, C],
    None without one. shift: the last token [B, D], None without token shift.
    """

    memory: Tensor
    conv: Tensor | None
    shift: Tensor | None


Streams = Mapping[str, Tensor | SharedInput]
"""Input [B, T, D] of each map, by the map's letter: r, k, v and those of the gates."""


class Tokens(NamedTuple):
    """Projections of some tokens, up to the recurrence.

    r and k: [B, T, Hk, K]. v: [B, T, H, V]. conv and shift: the parts of the state that are not memory.
    """

    streams: Streams
    r: Tensor
    k: Tensor
    v: Tensor
    conv: Tensor | None
    shift: Tensor | None


class ShiftMixer(Mixer):
    """A mixer with token shift and one matrix per head.

    A variant defines its token shift, and its equation in `forward`. Its query is called r, receptance.
    """

    kernel_families: ClassVar[tuple[str, ...]] = ("matrix_state", "token_shift", *FAMILIES)
    generation = "gates and decay"
    Settings: ClassVar[type[ShiftSettings]] = ShiftSettings
    controlled: ClassVar[dict[str, Any] | None] = {**CONTROLLED, "token_shift": False}
    stream_names: ClassVar[str]
    """Letters of the streams."""

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        key_heads = shared_heads(settings, "key_heads")
        share_kv = shares_values(settings, layer.d_model, key_heads)
        self.project = HeadProjection(settings, layer, key_heads=key_heads, share_kv=share_kv)
        self.readout = Readout(settings, layer, eps=64e-5)  # published as 1e-5 after a division by 8
        self.shift = self.token_shift() if settings.token_shift else None

    @abstractmethod
    def token_shift(self) -> TokenShift:
        """Return the token shift, with a stream for each of `stream_names`."""

    def select_streams(self, mixes: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the mixes without the gate's if there is no gate to read it."""
        has_gate = self.settings.output_gate != "none" or getattr(self.settings, "low_rank_gate", False)
        return {letter: mix for letter, mix in mixes.items() if has_gate or letter != "g"}

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """H, K, V of the memory."""
        return self.project.heads, self.project.key_dim, self.project.value_dim

    def project_tokens(self, x: Tensor, state: ShiftState | None) -> Tokens:
        """Project x [B, T, D], continuing from `state`, up to the recurrence."""
        conv = state and state.conv
        if self.shift is None:
            given = share_input(x, self, self.readout)
            r, k, v, conv = self.project(given, conv)
            return Tokens(dict.fromkeys(self.stream_names, given), r, k, v, conv, None)
        streams, last = self.shift(x, state and state.shift)
        r, k, v, conv = self.project(tuple(streams[letter] for letter in "rkv"), conv)
        return Tokens(streams, r, k, v, conv, last)

    def init_state(self, batch: int, *, capacity: int) -> ShiftState:
        """Return zeros; the size does not depend on `capacity`."""
        weight = self.readout.linear.weight
        memory = weight.new_zeros(batch, *self.memory_shape, dtype=at_least_float32(weight.dtype))
        return ShiftState(
            memory,
            self.project.init_state(batch),
            None if self.shift is None else weight.new_zeros(batch, self.layer.d_model),
        )

    def state_floats(self, seq_len: int) -> StateSize:
        """Return H K V for the memory, (kernel - 1) (2 Hk K + H V) for the convolution, D for the shift."""
        heads, key_dim, value_dim = self.memory_shape
        shift = 0 if self.shift is None else self.layer.d_model
        return StateSize(
            recurrent=heads * key_dim * value_dim, convolution=self.project.state_floats(), shift=shift
        )

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence, token by token."""
        heads, key_dim, value_dim = self.memory_shape
        return flops_per_token(heads=heads, key_dim=key_dim, value_dim=value_dim, decay=True, delta=False)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return rules without weight decay for everything that is not a linear map."""
        no_decay = ("shift.mix", "readout.norm.weight", "readout.norm.bias")
        return {name: Rule(decay=False) for name, _ in self.named_parameters() if name in no_decay}
