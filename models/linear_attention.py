"""Linear attention: softmax replaced by a feature map, so that the past is a sum."""

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.models.blocks.denominator import NormalisedMixer, NormalisedSettings, normalised_matrix_state
from linbench.models.blocks.feature_maps import FeatureMapName
from linbench.models.blocks.heads import OutputNorm, QKNorm
from linbench.models.blocks.linear import SharedInput


class LinearAttentionSettings(NormalisedSettings):
    """Published: elu+1, no convolution, no norm of q and k; the output norm replaces the normaliser where
    that is off (2210.10340)."""

    conv: int = Field(
        0, ge=0, le=4, description="kernel of the short convolution on q, k and v, with SiLU; 0 is none"
    )
    feature_map: FeatureMapName = Field(
        "elu+1", description="applied to q and k, before the norm; hedgehog, t2r and hadamard are learned"
    )
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


class LinearAttention(NormalisedMixer):
    """S_t = S_{t-1} + phi(k_t) v_t^T,  z_t = z_{t-1} + phi(k_t),  o_t = S_t^T phi(q_t) / (z_t . phi(q_t) +
    1e-6).

    Katharopoulos et al. 2020, arXiv:2006.16236; phi = elu + 1. Un-normalised form with output norm
    (`normalise=false`): o_t = RMSNorm(S_t^T phi(q_t) / sqrt(K)), Qin et al. 2022, arXiv:2210.10340. Other
    phi: DPFP, r_i r_{i-j} with r = [relu(x), relu(-x)] (2102.11174); learned ones have one W for all heads.
    Where phi may be negative the sum of the weights may vanish, and `normalise=false` is the form that is
    sound.

    State: H K V, and H K for the normaliser, K counted in features; constant in length.
    Known for: linear cost, a state that does not grow. Scores are positive, so interference between keys
    never cancels, and nothing is ever erased: recall fades as pairs outnumber key dimensions. The published
    layer has no convolution and no positions; without either, two layers cannot bind a value to the key
    before it. In the controlled form the output norm makes the division immaterial but for its epsilon; z is
    still carried, and counted. The output projection starts at zero (docs/decisions/0002).
    """

    name = "linear_attention"
    generation = "linear attention"
    Settings = LinearAttentionSettings
    epsilon: ClassVar[float] = 1e-6

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The equation, in either form."""
        if not self.settings.normalise:
            return matrix_state(q, k, v, state=memory)
        return normalised_matrix_state(q, k, v, lambda total: total + self.epsilon, state=memory)
