"""GRU: a gated recurrent network with one vector of memory, as a control."""

import torch
from torch import Tensor

from linbench.models.blocks.recurrent_mixer import RecurrentMixer
from linbench.models.blocks.starting_gates import GateSettings, logit
from linbench.models.blocks.vector_mixer import VectorSettings
from linbench.models.learner import Learner


class GRUSettings(GateSettings, VectorSettings):
    """Settings of the GRU. Classical: nothing around the cell."""


class GRU(RecurrentMixer):
    """GRU: a gated recurrent network with one vector of memory, as a control.

        h_t = z_t * h_{t-1} + (1 - z_t) * n_t
        n_t = tanh(W_n x_t + b_n + r_t * (U_n h_{t-1}))
        (r, z)_t = sigmoid(W x_t + U h_{t-1} + b)
        y_t = W_o h_t

    Cho et al. 2014, arXiv:1406.1078.

    State: h, W floats, as wide as the model by default, constant in length.

    Known for: what the LSTM does, with one vector less: its gates read the memory, so that it tracks states
    which linear recurrences with positive diagonal transitions cannot. What it forgets is what it writes. Its
    memory is a vector, which limits recall, and its steps must be taken one after the other, which is slow.

    Differences: r scales U_n h, as in torch's and cuDNN's, where the paper has U_n (r * h). There is one bias
    for each unit, where the paper has none and torch two. All start at zero, so that half of the memory is
    kept at first. The output projection, which the classical cell does not have, starts at zero
    (docs/decisions/0002).
    """

    name = "gru"
    learner = Learner(
        loss="none: gates choose what is written",
        memory="a vector that also makes its own gates",
        optimiser="none: gated averages",
        retention="decay per unit and token",
    )
    Settings = GRUSettings
    maps = 3

    def add_maps(self) -> None:
        """Add W, U and b, with the bias of z as `forget_bias` says."""
        super().add_maps()
        keep = self.recurrent.bias.data[self.width : 2 * self.width]
        keep.copy_(self.settings.start(torch.zeros_like(keep), logit))

    def step(self, given: Tensor, recalled: Tensor, vectors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Compute the equation."""
        (h,), (r, z, n), (Ur, Uz, Un) = vectors, given.chunk(3, dim=-1), recalled.chunk(3, dim=-1)
        z = torch.sigmoid(z + Uz)
        n = torch.tanh(n + torch.sigmoid(r + Ur) * Un)
        return (z * h + (1 - z) * n,)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the gates' products; U h counts with the linear maps."""
        return 4.0 * self.width
