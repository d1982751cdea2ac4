"""A variant of one's own in twenty lines: a memory that writes as much as it clears."""

from torch import nn, sigmoid

from linbench.kernels.matrix_state import matrix_state
from linbench.models.blocks.matrix_mixer import MatrixMixer


class Pulse(MatrixMixer):
    """S_t = a_t S_{t-1} + (1 - a_t) k_t v_t^T, one a_t per head and token."""

    name = "pulse"
    generation = "gates and decay"
    decays = True

    def __init__(self, settings, layer):
        super().__init__(settings, layer)
        self.gate = nn.Linear(layer.d_model, settings.heads)
        nn.init.constant_(self.gate.bias, 3.0)  # a = 0.95 without input: a half-life of 14 tokens

    def recur(self, x, q, k, v, memory):
        gate = self.gate(x.x)
        write = sigmoid(-gate)[..., None]  # 1 - a
        return matrix_state(q, k, write * v, log_decay=nn.functional.logsigmoid(gate), state=memory)
