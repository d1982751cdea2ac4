"""minGRU: a GRU whose gate and candidate read the token alone, so that it is a scan."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from linbench.kernels.dtypes import to_float32
from linbench.kernels.scan import flops_per_token, scan
from linbench.models.blocks.init import set_bias
from linbench.models.blocks.linear import Affine
from linbench.models.blocks.starting_gates import GateSettings
from linbench.models.blocks.vector_mixer import VectorMixer, VectorSettings
from linbench.models.learner import Learner


class MinGRUSettings(GateSettings, VectorSettings):
    """Settings of the minGRU. Published: a candidate of either sign, and nothing around the cell."""

    candidate: Literal["linear", "positive"] = Field(
        "linear",
        description=(
            "what is written: c = W x + b as it is (linear), or c + 1/2 where c is positive and sigmoid(c)"
            " elsewhere, as where the source computes in logarithms (positive)"
        ),
    )


class MinGRU(VectorMixer):
    """minGRU: a GRU whose gate and candidate read the token alone, so that it is a scan.

        h_t = (1 - z_t) h_{t-1} + z_t c_t
        z_t = sigmoid(W_z x_t + b_z),  c_t = W_c x_t + b_c
        y_t = W_o h_t

    Feng et al. 2024, arXiv:2410.01201.

    State: W, as wide as the model by default, constant in length.

    Known for: how little of a GRU is needed: without h in its gates it trains in parallel. It is an average
    of candidates whose weights tokens choose, in each channel by itself, which is gated linear attention with
    keys of one number. What is written and what is forgotten cannot be chosen apart. Its memory is a vector,
    which limits recall. Decays are positive, so parity is impossible.

    Differences: the output projection, which the source has only where the cell is wider than the model,
    starts at zero (docs/decisions/0002). The source has a second form that computes in logarithms, whose
    candidate is positive (`candidate=positive`); here the memory starts at zero in either case. Biases start
    as torch's.
    """

    name = "mingru"
    generation = "gates and decay"
    learner = Learner(
        loss="squared error of a constant per channel",
        memory="a vector",
        optimiser="one gradient step of length z",
        retention="no decay: a write erases as much as it adds",
    )
    Settings = MinGRUSettings

    def add_maps(self) -> None:
        """Add the gate and the candidate."""
        self.add_gates()
        self.candidate = Affine(self.layer.d_model, self.width)

    def add_gates(self) -> None:
        """Add the gate."""
        self.update = Affine(self.layer.d_model, self.width)
        if self.settings.forget_bias is not None:
            set_bias(self.update, -self.settings.forget_bias)

    def recur(self, u: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the equation."""
        logits, c = self.update_logits(u), to_float32(self.candidate(u))
        if self.settings.candidate == "positive":
            c = torch.where(c >= 0, c + 0.5, torch.sigmoid(c))
        h, last = scan(torch.sigmoid(-logits), torch.sigmoid(logits) * c, memory[:, 0])
        return h, last[:, None]

    def update_logits(self, u: Tensor) -> Tensor:
        """Return the logits of z [B, T, W] for u [B, T, D], in at least float32."""
        return to_float32(self.update(u))

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the scan."""
        return flops_per_token(self.width)
