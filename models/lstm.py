"""LSTM: the classical gated recurrent network, as a control."""

import torch
from torch import Tensor

from linbench.models.blocks.recurrent_mixer import RecurrentMixer
from linbench.models.blocks.starting_gates import GateSettings, logit
from linbench.models.blocks.vector_mixer import VectorSettings
from linbench.models.learner import Learner


class LSTMSettings(GateSettings, VectorSettings):
    """Settings of the LSTM. Classical: nothing around the cell."""


class LSTM(RecurrentMixer):
    """LSTM: the classical gated recurrent network, as a control.

        c_t = sigmoid(f_t) * c_{t-1} + sigmoid(i_t) * tanh(g_t)
        h_t = sigmoid(o_t) * tanh(c_t)
        (i, f, g, o)_t = W x_t + U h_{t-1} + b
        y_t = W_o h_t

    Hochreiter & Schmidhuber 1997, Neural Computation 9(8), with the forget gate of Gers, Schmidhuber &
    Cummins 2000, Neural Computation 12(10); it is older than arXiv.

    State: c and h, 2 W floats, constant in length.

    Known for: gates that read the memory, so that it tracks states which linear recurrences with positive
    diagonal transitions cannot. Its memory is a vector, which limits recall, and its steps must be taken one
    after the other, which is slow.

    Differences: the output projection, which the classical cell does not have, starts at zero
    (docs/decisions/0002). The forget gate's bias starts at 1, the others' at 0.
    """

    name = "lstm"
    year = 1997
    learner = Learner(
        loss="none: gates choose what is written",
        memory="a vector that also makes its own gates",
        optimiser="none: gated sums",
        retention="decay per unit and token",
    )
    Settings = LSTMSettings
    maps = 4
    vectors = 2

    def add_maps(self) -> None:
        """Add W, U and b, with the bias of the forget gate as `forget_bias` says, 1 by default."""
        super().add_maps()
        forget = self.recurrent.bias.data[self.width : 2 * self.width]
        forget.copy_(self.settings.start(torch.ones_like(forget), logit))

    def step(self, given: Tensor, recalled: Tensor, vectors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Compute the equation. The vectors are c and h."""
        i, f, g, o = (given + recalled).chunk(4, dim=-1)
        c = torch.sigmoid(f) * vectors[0] + torch.sigmoid(i) * torch.tanh(g)
        return c, torch.sigmoid(o) * torch.tanh(c)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return the operations of the gates' products; U h counts with the linear maps."""
        return 4.0 * self.width
