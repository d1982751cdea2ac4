"""A variant of one's own in twenty lines: linear attention whose memory leaks at a rate that each head learns."""

import torch
from torch import nn

from linbench.kernels.matrix_state import matrix_state
from linbench.models.blocks.matrix_mixer import MatrixMixer


class LeakySum(MatrixMixer):
    """S_t = a S_{t-1} + k_t v_t^T with one learned a in (0, 1) per head, constant over tokens."""

    name = "leaky_sum"
    generation = "gates and decay"
    decays = True

    def __init__(self, settings, layer):
        super().__init__(settings, layer)
        self.keep = nn.Parameter(torch.linspace(3.0, 6.0, settings.heads))  # a from 0.953 to 0.998

    def recur(self, x, q, k, v, memory):
        return matrix_state(q, k, v, log_decay=nn.functional.logsigmoid(self.keep), state=memory)
