"""Short causal convolutions before a recurrence, by which a token sees its neighbours.

H3, arXiv:2212.14052; Mamba, arXiv:2312.00752.
"""

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.short_convolution import Activation, short_convolution

INPUT_CONVOLUTION: Any = Field(
    0, ge=0, le=4, description="kernel of the short convolution on the layer's input, with SiLU; 0 is none"
)


class ShortConvolution(nn.Module):
    """A depthwise causal convolution, followed by SiLU unless `activation` is None.

    Weights start uniform in (-1/sqrt(kernel), 1/sqrt(kernel)), as torch initialises a depthwise filter.

    Args:
        channels: channels of the input.
        kernel: taps of the filter.
        activation: applied to the output.
        l2_heads: (channels, head_dim) if the first channels are heads that are scaled to unit length.
        parts: sizes of the tensors into which the output's channels are split; None: one tensor.
        bias: whether every channel has a bias, before the activation.
    """

    def __init__(
        self,
        channels: int,
        kernel: int,
        *,
        activation: Activation | None = "silu",
        l2_heads: tuple[int, int] | None = None,
        parts: Sequence[int] | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        bound = kernel**-0.5
        self.weight = nn.Parameter(torch.empty(kernel, channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound)) if bias else None
        self.activation = activation
        self.l2_heads, self.parts = l2_heads, parts

    @property
    def state_shape(self) -> tuple[int, int]:
        """Shape of a sequence's state: the last kernel - 1 inputs of every channel."""
        return self.weight.shape[0] - 1, self.weight.shape[1]

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the parts of the output [B, T, C_i] and the state.

        Args:
            x: [B, T, C].
            state: the inputs before x [B, kernel-1, C]; None stands for zeros.
        """
        return short_convolution(
            x,
            self.weight,
            state,
            bias=self.bias,
            activation=self.activation,
            l2_heads=self.l2_heads,
            parts=self.parts,
        )


class InputConvolution(nn.Module):
    """A short convolution on a layer's input, with SiLU by default, or nothing if the kernel is 0.

    For mixers that have no heads with q, k and v.
    """

    def __init__(
        self, channels: int, kernel: int, *, bias: bool = False, activation: Activation | None = "silu"
    ) -> None:
        super().__init__()
        self.short = ShortConvolution(channels, kernel, bias=bias, activation=activation) if kernel else None

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the input of the layer's maps [B, T, D] and the state.

        Args:
            x: [B, T, D].
            state: the inputs before x [B, kernel-1, D]; None stands for zeros.
        """
        if self.short is None:
            return x, None
        (read,), state = self.short(x, state)
        return read, state

    def init_state(self, batch: int) -> Tensor | None:
        """Return zeros; None without a convolution."""
        return None if self.short is None else self.short.weight.new_zeros(batch, *self.short.state_shape)

    def state_floats(self) -> int:
        """Return the floats that the convolution carries: (kernel - 1) D, or 0 without a convolution."""
        return 0 if self.short is None else self.short.state_shape[0] * self.short.state_shape[1]
