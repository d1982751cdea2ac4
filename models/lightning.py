"""Lightning attention: constant decays that depend on head and layer, and one norm over all heads."""

from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from linbench.kernels.matrix_state import matrix_state
from linbench.models.base import LayerInfo
from linbench.models.blocks.feature_maps import feature_map
from linbench.models.blocks.gates import ConstantDecay
from linbench.models.blocks.heads import NO_CONVOLUTION, NO_QK_NORM, OUTPUT_NORM, OutputNorm
from linbench.models.blocks.init import indices
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.matrix_mixer import MatrixMixer, MatrixSettings
from linbench.models.blocks.positions import alibi_slopes
from linbench.models.learner import Learner


class LightningSettings(MatrixSettings):
    """Settings of Lightning attention.

    Published: SiLU on q, k and v, a norm over all heads together, a sigmoid gate; no convolution, no norm of
    q and k.
    """

    conv: int = NO_CONVOLUTION
    feature_map: Literal["identity", "elu+1", "relu", "silu"] = Field(
        "silu", description="applied to q and k, before the norm"
    )
    value_map: Literal["identity", "silu"] = Field("silu", description="applied to v")
    qk_norm: Literal["none", "l2", "rms"] = NO_QK_NORM
    output_norm: OutputNorm = Field("rms_all", description=OUTPUT_NORM.description)
    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "sigmoid", description="gate computed from the layer's input, after the norm"
    )
    law: Literal["alibi", "linear"] = Field(
        "alibi", description="slopes of the heads: geometric as ALiBi's, or 8 h / H as of TransNormerLLM"
    )


class Lightning(MatrixMixer):
    """Lightning attention: constant decays that depend on head and layer, and one norm over all heads.

        S_t = a S_{t-1} + k_t v_t^T
        o_t = S_t^T q_t
        a = exp(-s_h (1 - l / (L - 1) + 1e-5))   in layer l of L

    Qin et al. 2023, arXiv:2307.14995 (TransNormerLLM) and 2024, arXiv:2401.04658 (Lightning Attention-2); the
    layer of MiniMax-01 2025, arXiv:2501.08313. s_h are ALiBi's slopes; `law=linear` is TransNormerLLM's a =
    exp(-(8 h / H) (1 - l / L)), h = 0 ... H-1.

    State: H K V, constant in length.

    Known for: low cost at very long context, between few layers of softmax attention. No decay depends on the
    token. The last layer has almost none, and sums grow with length there; a single layer counts as the
    first. The two laws differ a lot: of four heads the first layer keeps 0.78, 0.94, 0.985 and 0.996 of its
    memory from one token to the next by ALiBi's slopes, and 1, 0.135, 0.018 and 0.0025 by the linear law.

    Differences: in the controlled form the convolution's SiLU replaces the layer's own. The output projection
    starts at zero (docs/decisions/0002).
    """

    name = "lightning"
    generation = "gates and decay"
    learner = Learner(
        loss="inner product",
        memory="matrix",
        optimiser="one gradient step",
        retention="constant decay per head and layer",
    )
    Settings = LightningSettings
    controlled: ClassVar[dict[str, Any] | None] = {
        **(MatrixMixer.controlled or {}),
        "feature_map": "identity",
        "value_map": "identity",
    }
    decays = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        if settings.law == "alibi":
            log_decay = -alibi_slopes(settings.heads) * (1 - layer.index / max(layer.count - 1, 1) + 1e-5)
        else:
            log_decay = -8 * indices(settings.heads) / settings.heads * (1 - layer.index / layer.count)
        self.decay = ConstantDecay(log_decay)
        self.value_map = feature_map(settings.value_map, self.project.value_dim)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        return matrix_state(q, k, self.value_map.features(v), log_decay=self.decay(), scale=1.0, state=memory)
