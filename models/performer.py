"""Performer: linear attention whose features estimate the softmax."""

import math
from typing import Literal

from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import widened
from linbench.kernels.operators import without_autocast
from linbench.models.blocks.feature_maps import FeatureMap
from linbench.models.blocks.random_features import directions
from linbench.models.linear_attention import LinearAttention, LinearAttentionSettings


class PerformerSettings(LinearAttentionSettings):
    """Published: orthogonal positive features, K log K of them; no convolution, no norm of q and k."""

    feature_map: Literal["favor+", "favor-relu"] = Field(  # type: ignore[assignment]
        "favor+",
        description="favor+ estimates the softmax, favor-relu is the generalised form relu(w . x) + 1e-3",
    )
    features: int | None = Field(
        None, ge=1, description="number of random features m per head; null is K log K, rounded down"
    )
    orthogonal: bool = Field(True, description="directions at right angles to each other, K at a time")
    equal_norms: bool = Field(
        False,
        description="directions all of length sqrt(K), instead of lengths as Gaussian vectors have them",
    )


class Favor(FeatureMap):
    """phi(x) = (exp(w_i . x' - |x'|^2 / 2 - c) + 1e-4) / sqrt(m), x' = x / K^(1/4), for m directions w_i that
    all heads share.

    c is the largest exponent of a query, which the normaliser takes away again but for its epsilons. Keys
    have none: a largest one over the sequence would let the future reach the past, and in float32 none is
    needed, since the exponent is at most |w_i|^2 / 2.
    """

    def __init__(self, dim: int, count: int, settings: PerformerSettings) -> None:
        super().__init__(count, positive=True, flops=2 * count * dim)
        self.softmax = settings.feature_map == "favor+"
        self.directions: Tensor
        self.register_buffer(
            "directions",
            directions(count, dim, orthogonal=settings.orthogonal, equal_norms=settings.equal_norms),
        )

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """As `FeatureMap`, in at least float32."""
        q, k = self._exponents(q), self._exponents(k)
        if not self.softmax:
            return q.relu() + 1e-3, k.relu() + 1e-3
        q = q - q.amax(dim=-1, keepdim=True)
        return (q.exp() + 1e-4) * self.width**-0.5, (k.exp() + 1e-4) * self.width**-0.5

    def _exponents(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., m], of the generalised form only the products."""
        x = widened(x) * x.shape[-1] ** -0.25
        with without_autocast(x):
            products = x @ self.directions.to(x.dtype).mT
        return products - x.square().sum(dim=-1, keepdim=True) / 2 if self.softmax else products


class Performer(LinearAttention):
    """S_t = S_{t-1} + phi(k_t) v_t^T,  z_t = z_{t-1} + phi(k_t),  o_t = S_t^T phi(q_t) / (z_t . phi(q_t) +
    1e-6),  E phi(q) . phi(k) ~ exp(q . k / sqrt(K)).

    Choromanski et al. 2020, arXiv:2009.14794; phi are m random positive features.

    State: H m V, and H m for the normaliser, with m features in the place of K; constant in length.
    Known for: an unbiased estimate of softmax attention. Its variance is huge where scores are large, which
    is where attention picks one of many: recall is poor. Published code also takes from keys the largest
    exponent of the whole sequence, which is not causal; here keys have none. From queries it takes the
    largest w . x', here the largest exponent, so that the 1e-4 stays small beside it. The directions are
    drawn once and kept, where published code draws them anew every 1000 steps of training, which makes the
    loss jump; its output projection has a bias. In the controlled form features are brought to unit length.
    The output projection starts at zero (docs/decisions/0002).
    """

    name = "performer"
    Settings = PerformerSettings

    def make_feature_map(self, dim: int) -> FeatureMap:
        """Known by its own."""
        return Favor(dim, self.settings.features or max(1, int(dim * math.log(dim))), self.settings)
