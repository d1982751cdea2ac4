"""Base class of the variants whose memory is one matrix per head: into heads, recurrence, out of heads."""

from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.settings import Settings
from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.matrix_state import flops_per_token
from linbench.kernels.rotary import angles, rotate
from linbench.models.base import LayerInfo, Mixer, Out, StateSize
from linbench.models.blocks.feature_maps import FeatureMap, feature_map
from linbench.models.blocks.heads import (
    CONTROLLED,
    FAMILIES,
    HeadProjection,
    Readout,
    share_input,
)
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.positions import SelectiveRotation, positions_after, require_even
from linbench.models.blocks.shared_keys import SharedKeySettings, shared_heads, shares_values


class MatrixSettings(SharedKeySettings):
    """Settings of a layer whose memory is one matrix per head."""

    positions: Literal["none", "rope"] = Field(
        "none", description="whether q and k are rotated by where they stand, after their norm"
    )


class MatrixState(NamedTuple):
    """State of a layer with one matrix per head.

    memory: [B, H, K, V] in at least float32. conv: what the short convolution remembers [B, kernel-1, C],
    None without one. seen: number of tokens so far [B], None unless q and k are rotated. angle: the sum of
    all angles that tokens chose [B, Hk K/2] in float64, modulo 2 pi, None unless they choose any.
    """

    memory: Tensor
    conv: Tensor | None
    seen: Tensor | None = None
    angle: Tensor | None = None


class MatrixMixer(Mixer):
    """A mixer whose memory is one matrix per head.

    A variant adds its gates in `__init__` and its equation in `recur`.
    """

    kernel_families: ClassVar[tuple[str, ...]] = ("matrix_state", "rotary", *FAMILIES)
    Settings: ClassVar[type[Settings]] = MatrixSettings
    controlled: ClassVar[dict[str, Any] | None] = {**CONTROLLED, "positions": "none"}
    decays: bool = False
    """True if the memory decays; instances differ where a setting says so."""
    delta: bool = False
    """True if a write reads the memory first; instances differ where a setting says so."""

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.project = self.make_projection()
        self.readout = self.make_readout()
        if settings.positions != "none":
            require_even(self.project.key_dim, settings.positions)
        self.selective: SelectiveRotation | None = None
        if settings.positions == "selective":
            sizes = self.project.query_heads, self.project.key_dim
            self.selective = SelectiveRotation(layer.d_model, *sizes)

    @property
    def key_heads(self) -> int:
        """Heads of q and k. A variant whose setting has another name overrides it."""
        return shared_heads(self.settings, "key_heads")

    def make_projection(self) -> HeadProjection:
        """Return the module that makes q, k and v. Variants may override it."""
        return self.head_projection()

    def head_projection(self, **more: Any) -> HeadProjection:
        """Return a projection as the settings say, with the mixer's feature map, and what `more` says."""
        return HeadProjection(
            self.settings,
            self.layer,
            make_feature_map=self.make_feature_map,
            key_heads=self.key_heads,
            share_kv=shares_values(self.settings, self.layer.d_model, self.key_heads),
            **more,
        )

    def make_readout(self) -> Readout:
        """Return the module that makes the layer's output from its heads'. Variants may override it."""
        return Readout(self.settings, self.layer)

    def make_feature_map(self, dim: int) -> FeatureMap:
        """Return the feature map for heads of width `dim`. Variants with a map of their own override it."""
        return feature_map(self.settings.feature_map, dim)

    @abstractmethod
    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the heads' outputs o [B, T, H, V] and the memory after the last token.

        Args:
            x: the layer's input [B, T, D], for gates.
            q: [B, T, Hk, K].
            k: [B, T, Hk, K], or [B, steps T, Hk, K] with several steps per token.
            v: [B, T, H, V], or [B, steps T, H, V].
            memory: [B, H, K, V]; None stands for zeros.
        """

    @property
    def extra_columns(self) -> int:
        """Columns of the memory besides the values: 1 if it also keeps the sum of the weights."""
        return 0

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """H, K, V of the memory, with its extra columns."""
        return self.project.heads, self.project.key_dim, self.project.value_dim + self.extra_columns

    def forward(self, x: Tensor, state: MatrixState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        given = share_input(x, self, self.readout)
        q, k, v, conv = self.project(given, state and state.conv)
        seen, angle = (None, None) if state is None else (state.seen, state.angle)
        if self.settings.positions == "rope":
            q, k, seen = self._rotate(q, k, seen)
        elif self.selective is not None:
            q, k, seen, angle = self.selective(given, q, k, seen, angle)
        o, memory = self.recur(given, q, k, v, state and state.memory)
        return Out(self.readout(o, given), MatrixState(memory, conv, seen, angle), cross_layer)

    def _rotate(self, q: Tensor, k: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Rotate q and k by position, after `seen` tokens [B]; return how many tokens there are now, too."""
        positions = positions_after(seen, q)
        cosine, sine = angles(positions, self.project.key_dim, at_least_float32(q.dtype))
        # all keys of a token stand at its position: [B or 1, T, K/2] -> [B or 1, T steps, K/2]
        steps = self.project.steps
        of_keys = (x[:, :, None].expand(-1, -1, steps, -1).flatten(1, 2) for x in (cosine, sine))
        return rotate(q, cosine, sine), rotate(k, *of_keys), (positions[:, -1] + 1).expand(len(q))

    def init_state(self, batch: int, *, capacity: int) -> MatrixState:
        """Return zeros; the size does not depend on `capacity`."""
        weight = self.readout.linear.weight
        memory = weight.new_zeros(batch, *self.memory_shape, dtype=at_least_float32(weight.dtype))
        seen = (
            torch.zeros(batch, dtype=torch.int64, device=weight.device)
            if self.settings.positions != "none"
            else None
        )
        angle = None if self.selective is None else self.selective.start(batch)
        return MatrixState(memory, self.project.init_state(batch), seen, angle)

    def state_floats(self, seq_len: int) -> StateSize:
        """Return H K V for the memory and (kernel - 1) times the convolution's channels.

        These are 2 Hk K + H V channels, more if a token has several keys and values. Angles that tokens
        choose are Hk K / 2 floats more.
        """
        heads, key_dim, value_dim = self.memory_shape
        angles = 0 if self.selective is None else len(self.selective.bias)
        return StateSize(
            recurrent=heads * key_dim * value_dim + angles, convolution=self.project.state_floats()
        )

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence, token by token, and of the feature map."""
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
