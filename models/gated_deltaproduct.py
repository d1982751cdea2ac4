"""Gated DeltaProduct: several writes of the delta rule for every token, in a memory that can also be
cleared."""

from typing import Any

from torch import Tensor

from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.gates import ScalarDecay
from linbench.models.blocks.linear import SharedInput
from linbench.models.deltaproduct import DeltaProduct


class GatedDeltaProduct(DeltaProduct):
    """S_{t,0} = a_t S_{t-1,n},  S_{t,j} = S_{t,j-1} + beta_{t,j} k_{t,j} (v_{t,j} - S_{t,j-1}^T k_{t,j})^T
    for j = 1 .. n,  o_t = S_{t,n}^T q_t / sqrt(K).

    Siems et al. 2025, arXiv:2502.10297; the decay a_t is Gated DeltaNet's, once for every token.

    State: H K V, constant in length and in n; the convolution keeps 3 inputs per channel, of which keys and
        values have n times as many.
    Known for: DeltaProduct's rotations in a memory that can be cleared; with one step it is Gated DeltaNet. A
    ~ U(1, 16) here, where published code draws U(0, 16), and decays are drawn in strata
    (docs/decisions/0003). The output projection starts at zero (0002).
    """

    name = "gated_deltaproduct"
    families = (*DeltaProduct.families, "decay_gate")
    decays = True

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.decay = ScalarDecay(layer.d_model, settings.heads)

    def log_decay(self, x: SharedInput) -> Tensor:
        """[B, T, H]."""
        made: Tensor = self.decay(x)
        return made

    def parameter_rules(self) -> dict[str, Rule]:
        """No weight decay on what parameterises the forgetting."""
        return {"decay.A_log": Rule(decay=False), "decay.dt_bias": Rule(decay=False)}
