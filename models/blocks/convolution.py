"""The short causal convolution in front of a recurrence (H3 2212.14052, Mamba 2312.00752): how a token sees
its neighbour."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from linbench.kernels.short_convolution import Activation, short_convolution

INPUT_CONVOLUTION: Any = Field(
    0, ge=0, le=4, description="kernel of the short convolution on the layer's input, with SiLU; 0 is none"
)


class ShortConvolution(nn.Module):
    """Depthwise, causal, then SiLU unless `activation` is None. Initialised U(-1/sqrt(kernel),
    1/sqrt(kernel)), as torch does for a depthwise filter.

    bias: whether every channel has one, before the activation; not together with l2_heads. l2_heads:
        (channels, head_dim) where the first
    channels are heads to be brought to unit length. parts: how many channels of the output come apart, in
    tensors of their own; None: all together.
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
        """The last kernel - 1 inputs of every channel."""
        return self.weight.shape[0] - 1, self.weight.shape[1]

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[tuple[Tensor, ...], Tensor]:
        """x [B, T, C] after `state` [B, kernel-1, C] (None: zeros) -> y as parts [B, T, C_i], state."""
        if self.bias is None:
            return short_convolution(
                x, self.weight, state, activation=self.activation, l2_heads=self.l2_heads, parts=self.parts
            )
        (y,), state = short_convolution(x, self.weight, state, activation=None)
        y = (y + self.bias).to(x.dtype)
        y = y if self.activation is None else F.silu(y)
        return torch.split(y, list(self.parts or y.shape[-1:]), dim=-1), state


class InputConvolution(nn.Module):
    """What a layer's maps read: their input after a short convolution with SiLU, or as it is where the kernel
    is 0. For mixers without q, k and v in heads."""

    def __init__(self, channels: int, kernel: int, *, bias: bool = False) -> None:
        super().__init__()
        self.short = ShortConvolution(channels, kernel, bias=bias) if kernel else None

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """x [B, T, D] after `state` [B, kernel-1, D] (None: zeros) -> what is read [B, T, D], and state."""
        if self.short is None:
            return x, None
        (read,), state = self.short(x, state)
        return read, state

    def init_state(self, batch: int) -> Tensor | None:
        """Zeros; None without a convolution."""
        return None if self.short is None else self.short.weight.new_zeros(batch, *self.short.state_shape)

    def state_floats(self) -> int:
        """(kernel - 1) D, or none."""
        return 0 if self.short is None else self.short.state_shape[0] * self.short.state_shape[1]
