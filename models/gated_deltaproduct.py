"""Gated DeltaProduct: several writes of the delta rule per token, in a memory that can also be cleared."""

from typing import Any

from torch import Tensor

from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import ScalarDecay
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.starting_gates import DrawnGateSettings
from linbench.models.deltaproduct import DeltaProduct, DeltaProductSettings


class GatedDeltaProductSettings(DrawnGateSettings, DeltaProductSettings):
    """Settings of Gated DeltaProduct. Published: as DeltaProduct's."""


class GatedDeltaProduct(DeltaProduct):
    """Gated DeltaProduct: several writes of the delta rule per token, in a memory that can also be cleared.

        S_{t,0} = a_t S_{t-1,n}
        S_{t,j} = S_{t,j-1} + beta_{t,j} k_{t,j} (v_{t,j} - S_{t,j-1}^T k_{t,j})^T   for j = 1 .. n
        o_t = S_{t,n}^T q_t / sqrt(K)

    The decay a_t is Gated DeltaNet's, once for every token. Siems et al. 2025, arXiv:2502.10297.

    State: H K V, constant in length and in n; the convolution keeps 3 inputs per channel, and keys and values
    have n times as many channels.

    Known for: DeltaProduct's rotations in a memory that can be cleared; with one step it is Gated DeltaNet.

    Differences: A ~ U(1, 16), where published code draws U(0, 16), and decays are drawn in strata
    (docs/decisions/0003). The output projection starts at zero (docs/decisions/0002).
    """

    name = "gated_deltaproduct"
    learner = DeltaProduct.learner._replace(retention="decay per head and token")
    Settings = GatedDeltaProductSettings
    kernel_families = (*DeltaProduct.kernel_families, "decay_gate")
    decays = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.decay = ScalarDecay(layer.d_model, settings.heads, settings)

    def log_decay(self, x: SharedInput) -> Tensor:
        """Return the log decay [B, T, H]."""
        made: Tensor = self.decay(x)
        return made

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the decay's parameters."""
        return {"decay.A_log": Rule(decay=False), "decay.dt_bias": Rule(decay=False)}
