"""Gated DeltaNet: the delta rule in a memory that can also be cleared."""

from typing import Any, Literal

from pydantic import Field
from torch import Tensor

from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import ScalarDecay
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.starting_gates import DrawnGateSettings
from linbench.models.deltanet import DeltaNet, DeltaSettings


class WideDeltaSettings(DeltaSettings):
    """Settings of delta rules since Gated DeltaNet: values twice as wide as keys, a gate on the output."""

    expand_k: float = Field(0.75, gt=0, description="total key width over d_model")
    expand_v: float = Field(
        1.5,
        gt=0,
        description=(
            "total value width over d_model; with head_dim given, expand_v / expand_k * head_dim per head"
        ),
    )
    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "swish", description="gate computed from the layer's input, after the norm"
    )


class GatedDeltaNetSettings(DrawnGateSettings, WideDeltaSettings):
    """Settings of Gated DeltaNet.

    Published: as DeltaNet, with total key width 0.75 d_model, values twice as wide, and a swish gate on the
    output.
    """


class GatedDeltaNet(DeltaNet):
    """Gated DeltaNet: the delta rule in a memory that can also be cleared.

        S_t = a_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T
        o_t = S_t^T q_t / sqrt(K)

    The decay a_t is Mamba-2's, one per head and token. Yang, Kautz & Hatamizadeh 2024, arXiv:2412.06464.

    State: H K V, constant in length; the convolution keeps 3 inputs per channel.

    Known for: overwriting one association (the delta rule) and clearing all at once (the gate). The decay
    also acts on what the delta rule predicts: decay first, then erase and write.

    Differences: A ~ U(1, 16), where published code draws U(0, 16), whose logarithm can be minus infinity;
    decays are drawn in strata (docs/decisions/0003). Heads are sized for small models. Qwen3-Next's layer has
    half as many heads of keys as of values (`key_heads`), here as many. The output projection starts at zero
    (docs/decisions/0002).
    """

    name = "gated_deltanet"
    learner = DeltaNet.learner._replace(retention="decay per head and token")
    kernel_families = (*DeltaNet.kernel_families, "decay_gate")
    Settings = GatedDeltaNetSettings
    decays = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.decay = ScalarDecay(layer.d_model, settings.heads, settings)

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        update = Delta(self.beta(x), neg_eigval=self.settings.reflects)
        return matrix_state(q, k, v, log_decay=self.decay(x), update=update, state=memory)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the decay's parameters."""
        return {"decay.A_log": Rule(decay=False), "decay.dt_bias": Rule(decay=False)}
