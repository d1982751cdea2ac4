"""The short causal convolution in front of a recurrence (H3 2212.14052, Mamba 2312.00752): how a token sees its neighbour."""

import torch
from torch import Tensor, nn


class ShortConvolution(nn.Module):
    """Depthwise, causal, no bias, then SiLU. Initialised U(-1/sqrt(kernel), 1/sqrt(kernel)), as torch does for a depthwise filter."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        bound = kernel**-0.5
        self.weight = nn.Parameter(torch.empty(kernel, channels).uniform_(-bound, bound))

    @property
    def state_shape(self) -> tuple[int, int]:
        """The last kernel - 1 inputs of every channel."""
        return self.weight.shape[0] - 1, self.weight.shape[1]

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """x [B, T, C] after `state` [B, kernel-1, C] (None: zeros) -> y [B, T, C], state."""
        length = x.shape[1]
        if state is None:
            state = x.new_zeros(x.shape[0], *self.state_shape)
        padded = torch.cat([state, x], dim=1)
        taps = [self.weight[i] * padded[:, i : i + length] for i in range(self.weight.shape[0])]
        return nn.functional.silu(sum(taps[1:], start=taps[0])), padded[:, length:]
