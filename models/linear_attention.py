"""Linear attention: softmax replaced by a feature map, so that the past is a sum."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.models.blocks.heads import OutputNorm
from linbench.models.blocks.linear import Shared
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings


class LinearAttentionSettings(MatrixSettings):
    """Published: elu+1, no convolution, no norm of q and k; the output norm replaces the normaliser where that is off (2210.10340)."""

    conv: int = Field(0, ge=0, le=4, description="kernel of the short convolution on q, k and v, with SiLU; 0 is none")
    feature_map: Literal["identity", "elu+1", "relu", "silu"] = Field("elu+1", description="applied to q and k, before the norm")
    qk_norm: Literal["none", "l2", "rms"] = Field("none", description="norm of q and k per head, the last thing before the recurrence")
    output_norm: OutputNorm = Field("none", description="as everywhere; rms by default where normalise is off")
    normalise: bool = Field(True, description="divide by the sum of the weights; off is the un-normalised form with output norm")

    @model_validator(mode="before")
    @classmethod
    def _norm_instead_of_normaliser(cls, values: dict[str, Any]) -> dict[str, Any]:
        if str(values.get("normalise", True)).lower() in {"false", "off", "no", "0"}:
            return {"output_norm": "rms", **values}
        return values


class LinearAttention(MatrixMixer):
    """S_t = S_{t-1} + phi(k_t) v_t^T,  z_t = z_{t-1} + phi(k_t),  o_t = S_t^T phi(q_t) / (z_t . phi(q_t) + 1e-6).

    Katharopoulos et al. 2020, arXiv:2006.16236; phi = elu + 1. Un-normalised form with output norm (`normalise=false`):
    o_t = RMSNorm(S_t^T phi(q_t) / sqrt(K)), Qin et al. 2022, arXiv:2210.10340.

    State: H K V, and H K for the normaliser; constant in length.
    Known for: linear cost, a state that does not grow. Scores are positive, so interference between keys never cancels, and
    nothing is ever erased: recall fades as pairs outnumber key dimensions. The published layer has no convolution and no
    positions; without either, two layers cannot bind a value to the key before it. In the controlled form the output norm makes the division immaterial but
    for its epsilon; z is still carried, and counted. The output projection starts at zero (docs/decisions/0002).
    """

    name = "linear_attention"
    generation = "linear attention"
    Settings = LinearAttentionSettings
    epsilon: ClassVar[float] = 1e-6

    @property
    def memory_shape(self) -> tuple[int, int, int]:
        """The normaliser z is one more column of S."""
        heads, key_dim, value_dim = super().memory_shape
        return heads, key_dim, value_dim + self.settings.normalise

    def recur(self, x: Shared, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        """A column of ones beside v makes the last column of S the normaliser."""
        if not self.settings.normalise:
            return matrix_state(q, k, v, state=memory)
        with_ones = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
        o, memory = matrix_state(q, k, with_ones, scale=1.0, state=memory)
        return o[..., :-1] / (o[..., -1:] + self.epsilon), memory
