"""torch's GRU as a layer that declares its state, how to carry it, and a controlled form."""

from torch import nn


class Carried(nn.GRU):
    """h_t = z_t * h_{t-1} + (1 - z_t) * n_t, torch.nn.GRU (arXiv:1406.1078), which keeps one vector h."""

    controlled = True

    def state_floats(self, seq_len):
        return self.hidden_size

    def init_state(self, batch):
        return self.weight_hh_l0.new_zeros(batch, self.hidden_size)

    def forward(self, x, state=None):
        y, h = super().forward(x, None if state is None else state[None])  # torch's state has layers first
        return y, h[0]
