"""RNN: the simplest recurrent network, as a control."""

import torch
from torch import Tensor

from linbench.models.blocks.recurrent_mixer import RecurrentMixer
from linbench.models.learner import Learner


class RNN(RecurrentMixer):
    """RNN: the simplest recurrent network, as a control.

        h_t = tanh(W x_t + U h_{t-1} + b)
        y_t = W_o h_t

    Elman 1990, Cognitive Science 14(2); it is older than arXiv.

    State: h, W floats, as wide as the model by default, constant in length.

    Known for: the next memory is a nonlinear function of all of the last, so that one layer can track states
    which linear recurrences with positive diagonal transitions cannot. It has no gates: what it holds fades
    or is overwritten within some tokens, and gradients over many tokens vanish or grow without bound. Its
    memory is a vector, and its steps must be taken one after the other, which is slow.

    Differences: the output projection, which the classical network does not have beside W, starts at zero
    (docs/decisions/0002). U starts as torch's, b at zero.
    """

    name = "rnn"
    year = 1990
    learner = Learner(
        loss="none: every input is written alike",
        memory="a vector that also makes the next one",
        optimiser="none: a map and tanh",
        retention="what U and tanh leave",
    )
    maps = 1

    def step(self, given: Tensor, recalled: Tensor, vectors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Compute the equation."""
        return (torch.tanh(given + recalled),)
