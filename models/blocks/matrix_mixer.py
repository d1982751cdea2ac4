"""The frame of every variant whose memory is one matrix per head: into heads, recurrence, out of heads."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.errors import UserError
from linbench.common.settings import Settings
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.matrix_state import flops_per_token
from linbench.kernels.rotary import rotate
from linbench.models.base import LayerInfo, Mixer, Out, StateSize
from linbench.models.blocks.feature_maps import FeatureMap, feature_map
from linbench.models.blocks.heads import (
    CONTROLLED,
    FAMILIES,
    HeadProjection,
    HeadSettings,
    Readout,
    share_input,
)
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.positions import angles


class MatrixSettings(HeadSettings):
    """The surroundings of a memory that is one matrix per head."""

    positions: Literal["none", "rope"] = Field(
        "none", description="whether q and k are rotated by where they stand, after their norm"
    )


class MatrixState(NamedTuple):
    """memory [B, H, K, V] in at least float32; what the short convolution remembers [B, kernel-1, C], None
    without one; how many tokens were seen [B], None where positions do not matter."""

    memory: Tensor
    conv: Tensor | None
    seen: Tensor | None = None


class MatrixMixer(Mixer):
    """A variant adds its gates in `__init__` and its equation in `recur`."""

    families: ClassVar[tuple[str, ...]] = ("matrix_state", "rotary", *FAMILIES)
    Settings: ClassVar[type[Settings]] = MatrixSettings
    controlled: ClassVar[dict[str, Any] | None] = {**CONTROLLED, "positions": "none"}
    decays: ClassVar[bool] = False
    delta: ClassVar[bool] = False

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.project = self.make_projection()
        self.readout = self.make_readout()
        if settings.positions == "rope" and self.project.key_dim % 2:
            raise UserError(
                f"model.positions = rope needs an even key dimension, not {self.project.key_dim}; choose"
                " other heads or head_dim."
            )

    def make_projection(self) -> HeadProjection:
        """What makes q, k and v, for a variant to replace."""
        return HeadProjection(self.settings, self.layer, make_feature_map=self.make_feature_map)

    def make_readout(self) -> Readout:
        """What makes the layer's output of the heads', for a variant to replace."""
        return Readout(self.settings, self.layer)

    def make_feature_map(self, dim: int) -> FeatureMap:
        """The feature map for heads of width `dim`, for a variant to replace that is known by its own."""
        return feature_map(self.settings.feature_map, dim)

    @abstractmethod
    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """x, the layer's input [B, T, D] for gates to read, q, k [B, T, Hk, K], v [B, T, H, V], memory [B, H,
        K, V] -> o [B, T, H, V], memory. With several steps per token k and v are [B, steps T, ...]."""

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """H, K, V of the memory."""
        return self.project.heads, self.project.key_dim, self.project.value_dim

    def forward(self, x: Tensor, state: MatrixState | None = None, handed: Any = None) -> Out:
        """As `Mixer.forward`."""
        given = share_input(x, self, self.readout)
        q, k, v, conv = self.project(given, state and state.conv)
        seen = state.seen if state is not None else None
        if self.settings.positions == "rope":
            here = torch.arange(x.shape[1], device=x.device)[None]
            here = here if seen is None else here + seen[:, None]
            turn = angles(here, self.project.key_dim, at_least_float32(q.dtype))
            of_keys = (each[:, :, None].expand(-1, -1, self.project.steps, -1).flatten(1, 2) for each in turn)
            q, k, seen = rotate(q, *turn), rotate(k, *of_keys), (here[:, -1] + 1).expand(len(x))
        o, memory = self.recur(given, q, k, v, state and state.memory)
        return Out(self.readout(o, given), MatrixState(memory, conv, seen), handed)

    def init_state(self, batch: int, *, capacity: int) -> MatrixState:
        """Zeros; the size does not depend on `capacity`."""
        weight = self.readout.linear.weight
        memory = weight.new_zeros(batch, *self.memory_shape, dtype=at_least_float32(weight.dtype))
        seen = (
            torch.zeros(batch, dtype=torch.int64, device=weight.device)
            if self.settings.positions == "rope"
            else None
        )
        return MatrixState(memory, self.project.init_state(batch), seen)

    def state_floats(self, seq_len: int) -> StateSize:
        """H K V for the memory, (kernel - 1) (2 Hk K + H V) for the convolution, more where a token has
        several keys and values."""
        heads, key_dim, value_dim = self.memory_shape
        return StateSize(recurrent=heads * key_dim * value_dim, convolution=self.project.state_floats())

    def recurrence_flops(self, seq_len: int) -> float:
        """Those of the recurrence, token by token, whatever form computes it, and of the feature map's matrix
        products."""
        heads, key_dim, value_dim = self.memory_shape
        recurrence = flops_per_token(
            heads=heads,
            key_dim=key_dim,
            value_dim=value_dim,
            decay=self.decays,
            delta=self.delta,
            steps=self.project.steps,
        )
        return recurrence + self.project.feature_flops()
