"""Directions along which variants reflect queries and keys, and how strongly."""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import to_float32
from linbench.kernels.norms import l2_norm
from linbench.models.blocks.attention_settings import WholeSettings
from linbench.models.blocks.convolution import ShortConvolution
from linbench.models.blocks.init import set_bias
from linbench.models.blocks.linear import Affine, Linear, LowRank, SharedInput


class ReflectionSettings(WholeSettings):
    """Settings of variants whose positions are products of reflections."""

    rank: int | None = Field(
        32,
        ge=1,
        description="rank of the map that makes the directions of reflections; null is a full matrix",
    )
    direction_conv: int = Field(
        3, ge=2, le=4, description="kernel of the short convolution on these directions, with SiLU"
    )


class Directions(nn.Module):
    """Directions w = l2(SiLU(conv(W_up W_down x))) of length one, per head and token. arXiv:2505.16381."""

    def __init__(
        self, d_model: int, heads: int, dim: int, settings: ReflectionSettings, *, eps: float = 1e-6
    ) -> None:
        super().__init__()
        self.heads, self.eps = heads, eps
        self.project: Linear | LowRank = (
            Linear(d_model, heads * dim)
            if settings.rank is None
            else LowRank(d_model, settings.rank, heads * dim)
        )
        self.conv = ShortConvolution(heads * dim, settings.direction_conv)

    def forward(self, x: SharedInput, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return w [B, T, H, K] in at least float32, and the state of the convolution."""
        (w,), state = self.conv(self.project(x), state)
        # in 16 bits a product of many reflections would drift: it would no longer keep lengths
        wide = to_float32(w)
        return l2_norm(wide.view(*wide.shape[:2], self.heads, -1), self.eps), state

    def init_state(self, batch: int) -> Tensor:
        """Return zeros for the convolution."""
        return self.conv.weight.new_zeros(batch, *self.conv.state_shape)

    def state_floats(self) -> int:
        """Return the floats that the convolution carries."""
        return self.conv.state_shape[0] * self.conv.state_shape[1]


class ReflectionStrength(Affine):
    """Strengths of reflections: beta = 2 sigmoid(W x + b), about 1 at the start, which is a projection."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__(d_model, heads)
        nn.init.normal_(self.weight, std=0.02)
        set_bias(self, 0.0)

    def forward(self, x: Any) -> Tensor:
        """Return beta [B, T, H] in at least float32."""
        return 2 * torch.sigmoid(to_float32(super().forward(x.x)))
