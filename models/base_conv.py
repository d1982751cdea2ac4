"""BaseConv: a gated convolution so short that a token sees only its neighbours."""

from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.common.settings import Settings
from linbench.models.base import LayerInfo, Mixer, Out, StateSize
from linbench.models.blocks.convolution import ShortConvolution
from linbench.models.blocks.linear import Affine
from linbench.models.learner import Learner


class BaseConvSettings(Settings):
    """Settings of BaseConv. Published: a kernel of 3."""

    kernel: int = Field(3, ge=1, le=4, description="how many tokens a token sees, itself included")


class BaseConvState(NamedTuple):
    """The last kernel - 1 inputs [B, kernel-1, D]."""

    conv: Tensor


class BaseConv(Mixer):
    """BaseConv: a gated convolution so short that a token sees only its neighbours.

        y_t = (c + sum_i w_i * x_{t-kernel+1+i}) * (W x_t + b) + x_t

    Products with w_i are per channel. Arora et al. 2023, arXiv:2312.04927.

    State: the last kernel - 1 inputs, D floats each; nothing recurrent.

    Known for: binding a value to the key before it, below a mixer with a memory (`base_conv+deltanet`).
    Alone, L layers see L (kernel - 1) + 1 tokens: recall over longer gaps is impossible at any width. It adds
    its own input, which the residual stream adds as well, so unlike other variants it does not start as zero.
    """

    name = "base_conv"
    kernel_families = ("short_convolution",)
    generation = "other"
    learner = Learner(
        loss="none: a filter of kernel tokens",
        memory="the last inputs",
        optimiser="none: nothing is fitted",
        retention="drops what is older than kernel - 1 tokens",
    )
    Settings = BaseConvSettings

    def __init__(self, settings: Any, layer: LayerInfo) -> None:
        super().__init__(settings, layer)
        self.conv = ShortConvolution(layer.d_model, settings.kernel, activation=None)
        bound = settings.kernel**-0.5
        self.bias = nn.Parameter(torch.empty(layer.d_model).uniform_(-bound, bound))
        self.linear = Affine(layer.d_model, layer.d_model)

    def forward(self, x: Tensor, state: BaseConvState | None = None, cross_layer: Any = None) -> Out:
        """Mix x as `Mixer.forward` says."""
        (near,), conv = self.conv(x, state and state.conv)
        return Out((near + self.bias) * self.linear(x) + x, BaseConvState(conv), cross_layer)

    def init_state(self, batch: int, *, capacity: int) -> BaseConvState:
        """Return zeros; the size does not depend on `capacity`."""
        return BaseConvState(self.linear.weight.new_zeros(batch, *self.conv.state_shape))

    def state_floats(self, seq_len: int) -> StateSize:
        """Return (kernel - 1) D."""
        inputs, channels = self.conv.state_shape
        return StateSize(convolution=inputs * channels)

    def recurrence_flops(self, seq_len: int) -> float:
        """Return 0: there is nothing besides the convolution and the linear layer."""
        return 0.0
