"""Performer: linear attention with random features that estimate the softmax."""

import math
from typing import Literal

from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import matrix_state
from linbench.kernels.operators import without_autocast
from linbench.models.blocks.denominator import NormalisedSettings, normalised_matrix_state
from linbench.models.blocks.feature_maps import FeatureMap
from linbench.models.blocks.heads import NO_CONVOLUTION, OutputNorm, QKNorm
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer
from linbench.models.blocks.random_features import directions
from linbench.models.learner import Learner


class PerformerSettings(NormalisedSettings):
    """Settings of the Performer.

    Published: orthogonal positive features, K log K of them; no convolution, no norm of q and k.
    """

    conv: int = NO_CONVOLUTION
    qk_norm: QKNorm = Field(
        "none",
        description=(
            "norm of q and k per head, the last thing before the recurrence; l1 makes positive features sum"
            " to one"
        ),
    )
    output_norm: OutputNorm = Field(
        "none", description="as everywhere; rms by default where normalise is off"
    )
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
    """phi(x) = (exp(w_i . x' - |x'|^2 / 2 - c) + 1e-4) / sqrt(m), x' = x / K^(1/4), for m directions w_i.

    All heads share the directions. c is the largest exponent of a query, which the normaliser cancels except
    for its epsilons. Keys have none: a maximum over the sequence would let the future reach the past, and in
    float32 none is needed, since the exponent is at most |w_i|^2 / 2.
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
        """Return the features of q and of k, in at least float32."""
        q, k = self._exponents(q), self._exponents(k)
        if not self.softmax:
            return q.relu() + 1e-3, k.relu() + 1e-3
        q = q - q.amax(dim=-1, keepdim=True)
        return (q.exp() + 1e-4) * self.width**-0.5, (k.exp() + 1e-4) * self.width**-0.5

    def _exponents(self, x: Tensor) -> Tensor:
        """Return exponents [..., m] of x [..., K]; in the generalised form only the products."""
        x = to_float32(x) * x.shape[-1] ** -0.25
        with without_autocast(x):
            products = x @ self.directions.to(x.dtype).mT
        return products - x.square().sum(dim=-1, keepdim=True) / 2 if self.softmax else products


class Performer(MatrixMixer):
    """Performer: linear attention with random features that estimate the softmax.

        S_t = S_{t-1} + phi(k_t) v_t^T
        z_t = z_{t-1} + phi(k_t)
        o_t = S_t^T phi(q_t) / (z_t . phi(q_t) + 1e-6)
        E phi(q) . phi(k) ~ exp(q . k / sqrt(K))

    phi are m random positive features. Choromanski et al. 2020, arXiv:2009.14794.

    State: H m V, and H m for the normaliser, with m features in place of K; constant in length.

    Known for: an unbiased estimate of softmax attention. Its variance is huge where scores are large, which
    is where attention selects one of many: recall is poor.

    Differences: published code also subtracts from keys the largest exponent of the whole sequence, which is
    not causal; here keys have none. From queries it subtracts the largest w . x', here the largest exponent,
    so that the 1e-4 stays small beside it. The directions are drawn once and kept, where published code draws
    them anew every 1000 steps of training, which makes the loss jump; its output projection has a bias. In
    the controlled form features are brought to unit length. The output projection starts at zero
    (docs/decisions/0002).
    """

    name = "performer"
    generation = "linear attention"
    learner = Learner(
        loss="inner product",
        memory="matrix, and a sum of keys that divides what is read",
        optimiser="one gradient step",
        retention="keeps all",
    )
    Settings = PerformerSettings

    @property
    def extra_columns(self) -> int:
        """1 if z is kept, as one more column of S."""
        return int(self.settings.normalise)

    def make_feature_map(self, dim: int) -> FeatureMap:
        """Return the random features."""
        count = self.settings.features or max(1, int(dim * math.log(dim)))
        return Favor(dim, count, self.settings)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation; without the division it is that of un-normalised linear attention."""
        if not self.settings.normalise:
            return matrix_state(q, k, v, state=memory)
        return normalised_matrix_state(q, k, v, lambda total: total + 1e-6, state=memory)
