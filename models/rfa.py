"""Random feature attention: sines and cosines whose products estimate a Gaussian kernel, with or without a
gate that forgets."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.dtypes import widened
from linbench.kernels.matrix_state import flops_per_token, matrix_state
from linbench.kernels.operators import without_autocast
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.denominator import (
    NormalisedMixer,
    NormalisedSettings,
    keep_from_zero,
    normalised_matrix_state,
)
from linbench.models.blocks.feature_maps import FeatureMap
from linbench.models.blocks.heads import OutputNorm, QKNorm
from linbench.models.blocks.linear import Affine, SharedInput
from linbench.models.blocks.random_features import directions


class RFASettings(NormalisedSettings):
    """Published: 64 directions, q and k of unit length before the features, no gate, no convolution."""

    conv: int = Field(
        0, ge=0, le=4, description="kernel of the short convolution on q, k and v, with SiLU; 0 is none"
    )
    feature_map: Literal["sin-cos"] = Field("sin-cos", description="sine and cosine of each direction")  # type: ignore[assignment]
    qk_norm: QKNorm = Field("none", description="norm of the features, which have unit length as they are")
    output_norm: OutputNorm = Field(
        "none", description="as everywhere; rms by default where normalise is off"
    )
    directions: int = Field(64, ge=1, description="number of random directions P; a head has 2 P features")
    orthogonal: bool = Field(False, description="directions at right angles to each other, K at a time")
    gated: bool = Field(
        False, description="whether a gate g per head and token forgets, and writes with 1 - g"
    )


class SinCos(FeatureMap):
    """phi(x) = [sin(W x'), cos(W x')] / sqrt(P), x' = x / (|x| + 1e-3), W = W_0 diag(sigma): W_0 [P, K] for
    all heads, sigma learned [H, K]."""

    def __init__(self, dim: int, settings: RFASettings) -> None:
        super().__init__(2 * settings.directions, positive=False, flops=2 * settings.directions * dim)
        self.sigma = nn.Parameter(torch.ones(settings.heads, dim))
        self.directions: Tensor
        self.register_buffer(
            "directions", directions(settings.directions, dim, orthogonal=settings.orthogonal)
        )

    def features(self, x: Tensor) -> Tensor:
        """As `FeatureMap.features`, in at least float32."""
        x = widened(x)
        x = x / (x.norm(dim=-1, keepdim=True) + 1e-3) * self.sigma
        with without_autocast(x):
            angles = x @ self.directions.to(x.dtype).mT
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1)
        scaled: Tensor = waves / (self.width / 2) ** 0.5
        return scaled


class RFA(NormalisedMixer):
    """S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) v_t^T,  z alike,  o_t = S_t^T phi(q_t) / (z_t . phi(q_t));
    plain: both factors are one.

    Peng et al. 2021, arXiv:2103.02143; g_t = sigmoid(w . x_t + b) per head (`gated=true`). With q and k of
    unit length and sigma = 1, E phi(q) . phi(k) = exp(-|q - k|^2 / 2).

    State: H 2P V, and H 2P for the normaliser; constant in length.
    Known for: a softmax of bounded scores, so that the estimate's variance is bounded too. It cannot attend
    sharply, and features have either sign: the sum of the weights may come near zero. Here its size is kept
    above 1e-3 and its sign kept; `normalise=false` has an output norm in its place. Published code scales
    features by 0.1 and keeps the sum above 1, so that it divides by one early in every sequence; here
    features have the scale of the theory. Directions are drawn once, not anew for each step out of a pool,
    and projections have no bias. The gate starts as torch's linear layers do, near one half: a memory of a
    token or two. The output projection starts at zero (docs/decisions/0002).
    """

    name = "rfa"
    generation = "linear attention"
    Settings = RFASettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.gate = Affine(layer.d_model, settings.heads) if settings.gated else None

    def make_feature_map(self, dim: int) -> FeatureMap:
        """Known by its own."""
        return SinCos(dim, self.settings)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The equation, in either form."""
        log_decay: Tensor | None = None
        if self.gate is not None:
            gate = self.gate(x.x).to(q.dtype)
            log_decay, k = F.logsigmoid(gate), k * torch.sigmoid(-gate)[..., None]
        if not self.settings.normalise:
            return matrix_state(q, k, v, log_decay=log_decay, scale=1.0, state=memory)
        return normalised_matrix_state(q, k, v, keep_from_zero, log_decay=log_decay, state=memory)

    def recurrence_flops(self, seq_len: int) -> float:
        """With those of the decay only where it is gated."""
        heads, key_dim, value_dim = self.memory_shape
        recurrence = flops_per_token(
            heads=heads, key_dim=key_dim, value_dim=value_dim, decay=self.settings.gated, delta=False
        )
        return recurrence + self.project.feature_flops()

    def parameter_rules(self) -> dict[str, Rule]:
        """No weight decay on a scale."""
        return {"project.feature_map.sigma": Rule(decay=False)}
