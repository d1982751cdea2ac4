"""Comba: a delta rule that erases less than it writes, and looks past what it has just written."""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.linear import SharedInput
from linbench.models.gated_deltanet import GatedDeltaNet, GatedDeltaNetSettings


class CombaSettings(GatedDeltaNetSettings):
    """Published: as Gated DeltaNet, with a sigmoid gate on the output."""

    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "sigmoid", description="gate computed from the layer's input, after the norm"
    )
    correction: float = Field(
        0.02, description="what d starts from: the authors advise 0.02 for small models, 1 for large ones"
    )


class Comba(GatedDeltaNet):
    """S_t = a_t S_{t-1} + beta_t k_t (v_t - S_{t-1}^T (b k_t))^T,  o_t = S_t^T (q_t - d k_t) / sqrt(K).

    Hu et al. 2025, arXiv:2506.02475. The decay a_t is Gated DeltaNet's; b = sigmoid of a number per head that
    starts at 1, d a number per head.

    State: H K V, constant in length; the convolution keeps 3 inputs per channel.
    Known for: closed-loop control of the memory. The delta rule predicts from the state before its decay,
    erases the share b of what it finds, and the query is corrected by the key of its own token. Published
    code norms b k once more, which takes b away, or q only after the correction; here, as in the paper, q and
    k are normed first. As Gated DeltaNet: A ~ U(1, 16), in strata (docs/decisions/0003); the output
    projection starts at zero (0002).
    """

    name = "comba"
    Settings = CombaSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.erase = nn.Parameter(torch.ones(settings.heads))
        self.correction = nn.Parameter(torch.full((settings.heads,), settings.correction))

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The equation."""
        erased = (torch.sigmoid(self.erase)[:, None] * k).to(k.dtype)
        corrected = (q - self.correction[:, None] * k).to(q.dtype)
        update = Delta(self.beta(x), erased, "undecayed", neg_eigval=self.settings.reflects)
        return matrix_state(corrected, k, v, log_decay=self.decay(x), update=update, state=memory)

    def parameter_rules(self) -> dict[str, Rule]:
        """Nor on the numbers per head."""
        return {**super().parameter_rules(), "erase": Rule(decay=False), "correction": Rule(decay=False)}
