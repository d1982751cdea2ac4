"""TransNormer's linear attention: a norm of the output replaces the normaliser."""

from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.models.blocks.feature_maps import FeatureMapName
from linbench.models.blocks.heads import NO_CONVOLUTION, NO_QK_NORM, OUTPUT_NORM, OutputNorm, QKNorm
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings
from linbench.models.learner import Learner


class TransNormerSettings(MatrixSettings):
    """Settings of TransNormer.

    Published: elu of q and k, swish of v, a norm over all heads together, then a swish gate; no convolution.
    """

    conv: int = NO_CONVOLUTION
    feature_map: FeatureMapName = Field("elu", description="applied to q and k, before the norm")
    qk_norm: QKNorm = NO_QK_NORM
    output_norm: OutputNorm = Field("rms_all", description=OUTPUT_NORM.description)
    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )
    value_swish: bool = Field(True, description="swish of v")


class TransNormer(MatrixMixer):
    """TransNormer's linear attention: a norm of the output replaces the normaliser.

        S_t = S_{t-1} + phi(k_t) swish(v_t)^T
        o_t = RMSNorm(S_t^T phi(q_t) / sqrt(K)) * swish(W x_t),  phi = elu

    Qin et al. 2022, arXiv:2210.10340: dividing by the sum of the weights makes gradients without bound where
    that sum is small. phi and the gate are those of the authors' second version.

    State: H K V, constant in length.

    Known for: stable training without a normaliser. Scores have either sign, so interference can cancel, but
    nothing is ever forgotten.

    Differences: the published model also has layers of attention within blocks; this is its other kind of
    layer, alone. The norm has weights, as every RMS norm here. In the controlled form, where the convolution
    ends in a swish, v has no second one; what is left is linear attention without a normaliser and with phi =
    elu. The output projection starts at zero (docs/decisions/0002).
    """

    name = "transnormer"
    generation = "linear attention"
    learner = Learner(
        loss="inner product", memory="matrix", optimiser="one gradient step", retention="keeps all"
    )
    Settings = TransNormerSettings
    controlled: ClassVar[dict[str, Any] | None] = {**(MatrixMixer.controlled or {}), "value_swish": False}

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation, without the norm and the gate."""
        return matrix_state(q, k, F.silu(v) if self.settings.value_swish else v, state=memory)
