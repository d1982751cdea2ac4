"""Based: linear attention whose feature map is a second-order Taylor series of the exponential."""

import math
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.common.settings import ABSENT
from linbench.kernels.dtypes import to_float32
from linbench.models.blocks.feature_maps import FeatureMap, squares
from linbench.models.blocks.heads import HeadProjection
from linbench.models.blocks.linear import SharedInput
from linbench.models.linear_attention import LinearAttention, LinearAttentionSettings


class SmallKeySettings(LinearAttentionSettings):
    """Settings of a layer whose queries and keys are small, since their features are many."""

    feature_dim: int = Field(
        16, ge=1, description="dimension f of q and k of a head, in place of expand_k * d_model / heads"
    )
    share_kv: Literal[False] = Field(
        False,
        description="false: keys have a width of their own, so no map makes both them and values",
        json_schema_extra={ABSENT: False},
    )


class BasedSettings(SmallKeySettings):
    """Settings of Based. Published: keys of 16 numbers a head, no convolution, no norm of q and k."""

    feature_map: Literal["taylor"] = Field(  # type: ignore[assignment]
        "taylor", description="the terms of the exponential up to the second power"
    )


class Taylor(FeatureMap):
    """phi(x) = [1, x', squares(x') / sqrt(2)] with x' = x / f^(1/4), in at least float32.

    phi(q) . phi(k) = 1 + s + s^2 / 2 with s = q . k / sqrt(f), which is never below one half.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(1 + dim + dim * (dim + 1) // 2, positive=False)

    def features(self, x: Tensor) -> Tensor:
        """Return the features [..., 1 + f + f (f + 1) / 2]."""
        x = to_float32(x) * x.shape[-1] ** -0.25
        return torch.cat([torch.ones_like(x[..., :1]), x, squares(x) / math.sqrt(2)], dim=-1)


class Based(LinearAttention):
    """Based: linear attention that weighs by the second-order Taylor series of the softmax's exponential.

        S_t = S_{t-1} + phi(k_t) v_t^T
        z_t = z_{t-1} + phi(k_t)
        o_t = S_t^T phi(q_t) / (z_t . phi(q_t) + 1e-6)
        phi(q) . phi(k) = 1 + s + s^2 / 2,  s = q . k / sqrt(f)

    phi(x) = [1, x / f^(1/4), all products of two numbers of x / sqrt(2 f)]. Arora et al. 2024,
    arXiv:2402.18668.

    State: H (1 + f + f (f + 1) / 2) (V + 1), constant in length: 153 rows a head for f = 16.

    Known for: a dial between recall and memory, which is f. Weights are positive and nearly even where scores
    are small; only large scores stand out, by their square.

    Differences: the published model has layers of three kinds: a gated short convolution, this one, and
    softmax attention within a window. Here this one is alone, and a pattern makes the others:
    `base_conv+based+attention[window=64]` (the authors' page says 64, their configuration 256). Each product
    of two different numbers is kept once, times sqrt(2): published code has it twice, which gives the same
    weights with 273 rows. In the controlled form features are brought to unit length, and keys still have f
    numbers. The output projection starts at zero (docs/decisions/0002).
    """

    name = "based"
    learner = LinearAttention.learner
    Settings: ClassVar[type[SmallKeySettings]] = BasedSettings

    def make_feature_map(self, dim: int) -> FeatureMap:
        """Return the Taylor series."""
        return Taylor(dim)

    def head_projection(self, **more: Any) -> HeadProjection:
        """Return a projection with queries and keys of f numbers."""
        return super().head_projection(head_dim=self.settings.feature_dim, **more)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation in at least float32.

        In bfloat16 features of opposite sign would not cancel where a weight is small.
        """
        o, memory = super().recur(x, q, k, to_float32(v), memory)
        return o.to(v.dtype), memory
