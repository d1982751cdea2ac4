"""Random feature attention: sines and cosines estimate a Gaussian kernel, optionally with a forget gate."""

from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state import flops_per_token, matrix_state
from linbench.kernels.operators import without_autocast
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.denominator import NormalisedSettings, keep_from_zero, normalised_matrix_state
from linbench.models.blocks.feature_maps import FeatureMap
from linbench.models.blocks.heads import NO_CONVOLUTION, OutputNorm, QKNorm
from linbench.models.blocks.init import set_bias
from linbench.models.blocks.linear import Affine, SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer
from linbench.models.blocks.random_features import directions
from linbench.models.blocks.starting_gates import GateSettings
from linbench.models.learner import Learner


class RFASettings(GateSettings, NormalisedSettings):
    """Settings of RFA.

    Published: 64 directions, q and k of unit length before the features, no gate, no convolution.
    """

    conv: int = NO_CONVOLUTION
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

    @model_validator(mode="after")
    def _gate_to_start(self) -> Self:
        if self.forget_bias is not None and not self.gated:
            raise ValueError("forget_bias needs a gate; set gated = true")
        return self


class SinCos(FeatureMap):
    """phi(x) = [sin(W x'), cos(W x')] / sqrt(P) with x' = x / (|x| + 1e-3) and W = W_0 diag(sigma).

    W_0 [P, K] is the same for all heads; sigma [Hk, K] is learned.
    """

    def __init__(self, dim: int, heads: int, settings: RFASettings) -> None:
        super().__init__(2 * settings.directions, positive=False, flops=2 * settings.directions * dim)
        self.sigma = nn.Parameter(torch.ones(heads, dim))
        self.directions: Tensor
        self.register_buffer(
            "directions", directions(settings.directions, dim, orthogonal=settings.orthogonal)
        )

    def features(self, x: Tensor) -> Tensor:
        """Return the features, in at least float32."""
        x = to_float32(x)
        x = x / (x.norm(dim=-1, keepdim=True) + 1e-3) * self.sigma
        with without_autocast(x):
            angles = x @ self.directions.to(x.dtype).mT
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1)
        scaled: Tensor = waves / (self.width / 2) ** 0.5
        return scaled


class RFA(MatrixMixer):
    """Random feature attention: sines and cosines estimate a Gaussian kernel, optionally with a forget gate.

        S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) v_t^T,  z_t likewise
        o_t = S_t^T phi(q_t) / (z_t . phi(q_t))

    Without the gate both factors are one. g_t = sigmoid(w . x_t + b) per head (`gated=true`). With q and k of
    unit length and sigma = 1, E phi(q) . phi(k) = exp(-|q - k|^2 / 2). Peng et al. 2021, arXiv:2103.02143.

    State: H 2P V, and H 2P for the normaliser; constant in length.

    Known for: a softmax of bounded scores, so that the estimate's variance is bounded too. It cannot attend
    sharply, and features have either sign: the sum of the weights may come near zero.

    Differences: the size of that sum is kept above 1e-3 with its sign; `normalise=false` has an output norm
    instead. Published code scales features by 0.1 and keeps the sum above 1, so that it divides by one early
    in every sequence; here features have the scale of the theory. Directions are drawn once, not anew for
    each step out of a pool, and projections have no bias. The gate starts as torch's linear layers do, near
    one half: a memory of a token or two. The output projection starts at zero (docs/decisions/0002).
    """

    name = "rfa"
    generation = "linear attention"
    learner = Learner(
        loss="inner product",
        memory="matrix, and a sum of keys that divides what is read",
        optimiser="one gradient step",
        retention="keeps all; with a gate, decay per head and token",
    )
    Settings = RFASettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.gate = Affine(layer.d_model, settings.heads) if settings.gated else None
        if self.gate is not None and settings.forget_bias is not None:
            set_bias(self.gate, settings.forget_bias)

    @property
    def extra_columns(self) -> int:
        """1 if z is kept, as one more column of S."""
        return int(self.settings.normalise)

    def make_feature_map(self, dim: int) -> FeatureMap:
        """Return the sines and cosines."""
        return SinCos(dim, self.key_heads, self.settings)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation, in either form."""
        log_decay: Tensor | None = None
        strength: Tensor | None = None
        if self.gate is not None:
            gate = self.gate(x.x).to(q.dtype)
            log_decay, strength = F.logsigmoid(gate), torch.sigmoid(-gate)
        if self.settings.normalise:
            return normalised_matrix_state(
                q, k, v, keep_from_zero, log_decay=log_decay, strength=strength, state=memory
            )
        written = v if strength is None else strength[..., None].to(v.dtype) * v
        return matrix_state(q, k, written, log_decay=log_decay, scale=1.0, state=memory)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the recurrence and the feature map; without a gate there is no decay."""
        heads, key_dim, value_dim = self.memory_shape
        recurrence = flops_per_token(
            heads=heads, key_dim=key_dim, value_dim=value_dim, decay=self.settings.gated, delta=False
        )
        return recurrence + self.project.feature_flops()

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for sigma."""
        return {"project.feature_map.sigma": Rule(decay=False)}
