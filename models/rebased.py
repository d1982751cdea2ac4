"""ReBased: linear attention that weighs by the square of a score, with a learned scale and shift."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import to_float32
from linbench.kernels.norms import layer_norm
from linbench.models.based import Based, SmallKeySettings
from linbench.models.blocks.feature_maps import FeatureMap, squares


class ReBasedSettings(SmallKeySettings):
    """Settings of ReBased. Published: keys of 16 numbers a head, a layer norm of q and k, no convolution."""

    feature_map: Literal["quadratic"] = Field(  # type: ignore[assignment]
        "quadratic", description="all products of two numbers, after a layer norm with scale and shift"
    )


class Quadratic(FeatureMap):
    """phi(x) = squares(x' / f^(1/4)) with x' = gamma * LayerNorm(x) + b, in at least float32.

    Queries and keys of all heads share gamma and b.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim * (dim + 1) // 2, positive=False)
        self.gamma = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def features(self, x: Tensor) -> Tensor:
        """Return the features [..., f (f + 1) / 2]."""
        x = to_float32(x)
        normed = layer_norm(x[..., None, :], self.gamma[None], self.shift[None]).squeeze(-2)
        return squares(normed * x.shape[-1] ** -0.25)


class ReBased(Based):
    """ReBased: linear attention that weighs by the square of a score, with a learned scale and shift.

        S_t = S_{t-1} + phi(k_t) v_t^T
        z_t = z_{t-1} + phi(k_t)
        o_t = S_t^T phi(q_t) / (z_t . phi(q_t) + 1e-5)
        phi(q) . phi(k) = (q' . k')^2 / f,  x' = gamma * LayerNorm(x) + b

    Queries and keys of all heads share gamma and b, which start at 1 and 0. Aksenov et al. 2024,
    arXiv:2402.10644.

    State: H (f (f + 1) / 2) (V + 1), constant in length: 136 rows a head for f = 16.

    Known for: a weight that can be zero. Based gives every key at least one half, also those that do not
    match; here gamma and b learn where the least weight lies. A key and its opposite weigh the same.

    Differences: 1e-5 is of the published layer, which keeps products of two different numbers once each, as
    here. The published model has layers of other kinds beside this one, as Based has; a pattern makes them.
    In the controlled form features are brought to unit length after the published norm, and keys still have f
    numbers. The output projection starts at zero (docs/decisions/0002).
    """

    name = "rebased"
    learner = Based.learner
    Settings = ReBasedSettings
    epsilon = 1e-5

    def make_feature_map(self, dim: int) -> FeatureMap:
        """Return squares and products of pairs."""
        return Quadratic(dim)
