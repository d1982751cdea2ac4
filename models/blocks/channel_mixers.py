"""Layers that follow a mixer and combine the channels of each token: SwiGLU, or those of published models."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linbench.kernels.gated_product import silu_product
from linbench.models.base import LayerInfo, StateSize
from linbench.models.blocks.canon import Canon
from linbench.models.blocks.init import orthogonal, zero_init
from linbench.models.blocks.linear import Linear
from linbench.models.blocks.token_shift import TokenShift, layer_depth, own_token_share


class ChannelMixer(nn.Module, ABC):
    """A layer from [B, T, D] to [B, T, D] that mixes channels. Some carry a state from token to token."""

    @abstractmethod
    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return y [B, T, D] and the state, None without one.

        Args:
            x: [B, T, D].
            state: the state after the token before x; None is that of the start.
        """

    def init_state(self, batch: int) -> Tensor | None:
        """Return the state before the first token, None without one."""
        return None

    def state_floats(self) -> StateSize:
        """Return the floats that the state has."""
        return StateSize()


class SwiGLU(ChannelMixer):
    """W_down (silu(W_gate x) * W_up x). arXiv:2002.05202.

    It is 8/3 D wide, rounded up to a multiple of 8, and W_down starts at zero if silent. At site D a canon
    layer convolves W_gate x and W_up x together.
    """

    def __init__(self, layer: LayerInfo, width: int | None = None, *, silent: bool = True) -> None:
        super().__init__()
        hidden = width or 8 * -(-layer.d_model // 3)
        self.up = Linear(layer.d_model, 2 * hidden)
        self.down = zero_init(Linear(hidden, layer.d_model), silent=silent)
        self.canon = Canon(2 * hidden) if "D" in layer.canon else None

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return y [B, T, D] and the state of the canon layer, None without one."""
        up = self.up(x)
        if self.canon is not None:
            up, state = self.canon(up, state)
        return self.down(silu_product(up)), state

    def init_state(self, batch: int) -> Tensor | None:
        """Return zeros for the canon layer, None without one."""
        return None if self.canon is None else self.canon.init_state(batch)

    def state_floats(self) -> StateSize:
        """Return the floats of the canon layer."""
        return StateSize(convolution=0 if self.canon is None else self.canon.state_floats())


class Identity(ChannelMixer):
    """The identity: adds the norm of the residual stream, which is its input, to that stream."""

    def __init__(self, layer: LayerInfo, width: int | None = None, *, silent: bool = True) -> None:
        super().__init__()

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, None]:
        """Return x, and None for the state."""
        return x, None


class SquaredReLU(ChannelMixer):
    """RWKV's channel mixer: sigmoid(W_r x_r) * W_v relu(W_k x_k)^2, 4 D wide. arXiv:2305.13048.

    x_r and x_k mix a token with the one before it. At first channel i takes (i / D)^(falling^steepness) from
    the token itself, where `falling` goes from 1 in the first layer to 1 / L in the last. W_r starts
    at zero, and W_v if silent. RWKV-7 (arXiv:2503.14456) has no receptance W_r.
    """

    def __init__(
        self,
        layer: LayerInfo,
        width: int | None = None,
        *,
        silent: bool = True,
        steepness: int,
        receptance: bool = True,
        orthogonal_keys: bool = False,
    ) -> None:
        super().__init__()
        hidden = width or 4 * layer.d_model
        mix = 1 - own_token_share(layer.d_model, layer_depth(layer).falling ** steepness)
        self.shift = TokenShift({"k": mix, "r": mix} if receptance else {"k": mix})
        self.key = Linear(layer.d_model, hidden)
        self.value = zero_init(Linear(hidden, layer.d_model), silent=silent)
        self.receptance = zero_init(Linear(layer.d_model, layer.d_model)) if receptance else None
        if orthogonal_keys:
            orthogonal(self.key, gain=(hidden / layer.d_model) ** 0.5)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return y [B, T, D] and the last token [B, D]."""
        streams, last = self.shift(x, state)
        y: Tensor = self.value(F.relu(self.key(streams["k"])).square())
        return y if self.receptance is None else torch.sigmoid(self.receptance(streams["r"])) * y, last

    def init_state(self, batch: int) -> Tensor:
        """Return zeros for the last token."""
        return self.key.weight.new_zeros(batch, self.key.weight.shape[1])

    def state_floats(self) -> StateSize:
        """Return D, for the last token."""
        return StateSize(shift=self.key.weight.shape[1])


CHANNEL_MIXERS: dict[str, Callable[..., ChannelMixer]] = {
    "swiglu": SwiGLU,
    "identity": Identity,
    "rwkv4": partial(SquaredReLU, steepness=1, orthogonal_keys=True),
    "rwkv6": partial(SquaredReLU, steepness=3),
    "rwkv7": partial(SquaredReLU, steepness=4, receptance=False),
}
"""Constructors by the names that users and mixers use, from a layer's place, a width and `silent`; "none" has
none."""

CHANNEL_FAMILIES: dict[str, tuple[str, ...]] = {
    "swiglu": ("gated_product",),
    **dict.fromkeys(("rwkv4", "rwkv6", "rwkv7"), ("token_shift",)),
}
"""Kernel families of those channel mixers that use any."""
