"""minLSTM: an LSTM whose gates and candidate read the token alone, so that it is a scan."""

import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.dtypes import to_float32
from linbench.models.blocks.init import set_bias
from linbench.models.blocks.linear import Affine
from linbench.models.mingru import MinGRU, MinGRUSettings


class MinLSTMSettings(MinGRUSettings):
    """Settings of the minLSTM. Published: a candidate of either sign, and nothing around the cell."""


class MinLSTM(MinGRU):
    """minLSTM: an LSTM whose gates and candidate read the token alone, so that it is a scan.

        h_t = (f_t h_{t-1} + i_t c_t) / (f_t + i_t)
        f_t = sigmoid(W_f x_t + b_f),  i_t = sigmoid(W_i x_t + b_i),  c_t = W_c x_t + b_c
        y_t = W_o h_t

    Feng et al. 2024, arXiv:2410.01201.

    State: W, as wide as the model by default, constant in length.

    Known for: how little of an LSTM is needed: without h in its gates, without a second vector and without
    tanh it trains in parallel. The gates are divided by their sum, so that h keeps its size at all lengths.
    It is a minGRU whose gate is i / (f + i), made by two maps, and has the same limits: a vector for a
    memory, and no parity.

    Differences: those of the minGRU. With a `forget_bias` b both gates start from it, at sigmoid(b) and
    sigmoid(-b), which makes f / (f + i) sigmoid(b).
    """

    name = "minlstm"
    learner = MinGRU.learner._replace(optimiser="one gradient step of length i / (f + i)")
    Settings = MinLSTMSettings

    def add_gates(self) -> None:
        """Add both gates."""
        self.forget = Affine(self.layer.d_model, self.width)
        self.input = Affine(self.layer.d_model, self.width)
        if self.settings.forget_bias is not None:
            set_bias(self.forget, self.settings.forget_bias)
            set_bias(self.input, -self.settings.forget_bias)

    def update_logits(self, u: Tensor) -> Tensor:
        """Return log(i / f), the logits of i / (f + i), [B, T, W] for u [B, T, D], in at least float32."""
        return F.softplus(-to_float32(self.forget(u))) - F.softplus(-to_float32(self.input(u)))
