"""Linear attention: a feature map replaces the softmax, so that the past becomes a sum."""

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.models.blocks.denominator import NormalisedSettings, normalised_matrix_state
from linbench.models.blocks.feature_maps import FeatureMapName
from linbench.models.blocks.heads import NO_CONVOLUTION, OutputNorm, QKNorm
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer
from linbench.models.learner import Learner


class LinearAttentionSettings(NormalisedSettings):
    """Settings of linear attention.

    Published: elu+1, no convolution, no norm of q and k. Without the division the output norm takes its place
    (2210.10340).
    """

    conv: int = NO_CONVOLUTION
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


class LinearAttention(MatrixMixer):
    """Linear attention: a feature map phi replaces the softmax, so that the past becomes a sum.

        S_t = S_{t-1} + phi(k_t) v_t^T
        z_t = z_{t-1} + phi(k_t)
        o_t = S_t^T phi(q_t) / (z_t . phi(q_t) + 1e-6)

    Katharopoulos et al. 2020, arXiv:2006.16236, with phi = elu + 1. The form without division
    (`normalise=false`) is o_t = RMSNorm(S_t^T phi(q_t) / sqrt(K)), Qin et al. 2022, arXiv:2210.10340. Other
    phi: DPFP, r_i r_{i-j} with r = [relu(x), relu(-x)] (2102.11174); learned maps have one W for all heads.
    Where phi may be negative, the sum of the weights may vanish, and only `normalise=false` is sound.

    State: H K V, and H K for the normaliser, where K counts features; constant in length.

    Known for: linear cost and a state that does not grow. Scores are positive, so interference between keys
    never cancels, and nothing is ever erased: recall fades as pairs outnumber key dimensions.

    Differences: the output projection starts at zero (docs/decisions/0002). The published layer has no
    convolution and no positions; without either, two layers cannot bind a value to the key before it. In the
    controlled form the output norm makes the division immaterial except for its epsilon; z is still carried,
    and counted.
    """

    name = "linear_attention"
    generation = "linear attention"
    learner = Learner(
        loss="inner product",
        memory="matrix, and a sum of keys that divides what is read",
        optimiser="one gradient step",
        retention="keeps all",
    )
    Settings = LinearAttentionSettings
    epsilon: ClassVar[float] = 1e-6

    @property
    def extra_columns(self) -> int:
        """1 if z is kept, as one more column of S."""
        return int(self.settings.normalise)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation, in either form."""
        if not self.settings.normalise:
            return matrix_state(q, k, v, state=memory)
        return normalised_matrix_state(q, k, v, lambda total: total + self.epsilon, state=memory)
