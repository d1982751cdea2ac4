"""RWKV's token shift: each channel of a token is mixed with the same channel of the token before it.

arXiv:2305.13048.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from linbench.kernels.operators import product_dtype
from linbench.kernels.token_shift import token_shift
from linbench.models.base import LayerInfo
from linbench.models.blocks.init import indices


class Depth(NamedTuple):
    """Depth of a layer among L layers.

    rising: from 0 in the first layer to 1 in the last. falling: from 1 in the first to 1 / L in the last.
    """

    rising: float
    falling: float


def layer_depth(layer: LayerInfo) -> Depth:
    """Return the depth of a layer; a single layer counts as the first."""
    return Depth(layer.index / max(1, layer.count - 1), 1 - layer.index / layer.count)


def channel_positions(width: int) -> Tensor:
    """Return numbers [width] from 0 at the first channel to 1 at the last; a single channel is the first."""
    return indices(width) / max(1, width - 1)


def own_token_share(width: int, power: float) -> Tensor:
    """Return (i / width)^power for each channel i: RWKV's initial share of the token itself."""
    return (indices(width) / width) ** power


class TokenShift(nn.Module):
    """x_t + mix * (x_{t-1} - x_t) with x_{-1} = 0, and one mix per channel for each of several streams.

    This is the convention of RWKV-6 and 7. RWKV-4 and 5 write mu x_t + (1 - mu) x_{t-1}: mix = 1 - mu.
    Streams are inputs of matrix products: under torch.autocast they have its dtype.
    """

    def __init__(self, mixes: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.names = tuple(mixes)
        self.mix = nn.Parameter(torch.stack([*mixes.values()]))

    def forward(self, x: Tensor, last: Tensor | None) -> tuple[dict[str, Tensor], Tensor]:
        """Return each stream [B, T, D] by name, and the last token.

        Args:
            x: [B, T, D].
            last: the token before x [B, D]; None stands for zeros.
        """
        return dict(zip(self.names, self.streams(x, last), strict=True)), x[:, -1].clone()

    def streams(self, x: Tensor, last: Tensor | None) -> tuple[Tensor, ...]:
        """Return the streams in their order."""
        return token_shift(x, self.mix, last, dtype=product_dtype(x))
