"""Comba: a delta rule that erases less than it writes and corrects the query by the newest key."""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.linear import SharedInput
from linbench.models.gated_deltanet import GatedDeltaNet, GatedDeltaNetSettings


class CombaSettings(GatedDeltaNetSettings):
    """Settings of Comba. Published: as Gated DeltaNet, with a sigmoid gate on the output."""

    output_gate: Literal["none", "swish", "sigmoid"] = Field(
        "sigmoid", description="gate computed from the layer's input, after the norm"
    )
    correction: float = Field(
        0.02, description="what d starts from: the authors advise 0.02 for small models, 1 for large ones"
    )


class Comba(GatedDeltaNet):
    """Comba: a delta rule that erases less than it writes and corrects the query by the newest key.

        S_t = a_t S_{t-1} + beta_t k_t (v_t - S_{t-1}^T (b k_t))^T
        o_t = S_t^T (q_t - d k_t) / sqrt(K)

    Hu et al. 2025, arXiv:2506.02475. The decay a_t is Gated DeltaNet's; b is the sigmoid of a number per head
    of keys that starts at 1, d a number per head of keys.

    State: H K V, constant in length; the convolution keeps 3 inputs per channel.

    Known for: closed-loop control of the memory. The delta rule predicts from the state before its decay,
    erases the share b of what it finds, and the query is corrected by the key of its own token.

    Differences: published code norms b k once more, which removes b, or norms q only after the correction;
    here, as in the paper, q and k are normed first. As in Gated DeltaNet, A ~ U(1, 16) in strata
    (docs/decisions/0003) and the output projection starts at zero (docs/decisions/0002).
    """

    name = "comba"
    learner = GatedDeltaNet.learner._replace(
        loss="b times squared error, 1 - b times inner product",
        optimiser="one gradient step, taken before the decay",
    )
    Settings = CombaSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.erase = nn.Parameter(torch.ones(self.key_heads))
        self.correction = nn.Parameter(torch.full((self.key_heads,), settings.correction))

    def recur(
        self, x: SharedInput, q: Tensor, k: Tensor, v: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        erased = (torch.sigmoid(self.erase)[:, None] * k).to(k.dtype)
        corrected = (q - self.correction[:, None] * k).to(q.dtype)
        update = Delta(self.beta(x), erased, "undecayed", neg_eigval=self.settings.reflects)
        return matrix_state(corrected, k, v, log_decay=self.decay(x), update=update, state=memory)

    def parameter_rules(self) -> dict[str, Rule]:
        """Return no weight decay for the decay's parameters and the numbers per head."""
        return {**super().parameter_rules(), "erase": Rule(decay=False), "correction": Rule(decay=False)}
