"""Token shift: each channel of a token takes a share of the same channel one token earlier. RWKV's
(2305.13048)."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from linbench.kernels.operators import product_dtype
from linbench.kernels.token_shift import token_shift
from linbench.models.base import LayerInfo
from linbench.models.blocks.init import indices


class Depth(NamedTuple):
    """Where a layer lies among L: `rising` goes from 0 at the first to 1 at the last, `falling` from 1 at the
    first to 1 / L at the last."""

    rising: float
    falling: float


def layer_depth(layer: LayerInfo) -> Depth:
    """Of a layer; a single one is the first."""
    return Depth(layer.index / max(1, layer.count - 1), 1 - layer.index / layer.count)


def channel_positions(width: int) -> Tensor:
    """[width] from 0 at the first channel to 1 at the last; a single one is the first."""
    return indices(width) / max(1, width - 1)


def own_token_share(width: int, power: float) -> Tensor:
    """[width] (i / width)^power: how much of channel i RWKV takes from the token itself at first, all the
    rest from the one before."""
    return (indices(width) / width) ** power


class TokenShift(nn.Module):
    """x_t + mix * (x_{t-1} - x_t), with a mix per channel for each of several streams, and x_{-1} = 0.

    This is RWKV-6 and 7's convention. RWKV-4 and 5 write mu x_t + (1 - mu) x_{t-1}: mix = 1 - mu. Streams are
    for products of matrices to read: under torch.autocast they come in its dtype.
    """

    def __init__(self, mixes: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.names = tuple(mixes)
        self.mix = nn.Parameter(torch.stack([*mixes.values()]))

    def forward(self, x: Tensor, last: Tensor | None) -> tuple[dict[str, Tensor], Tensor]:
        """x [B, T, D] after `last` [B, D] (None: zeros) -> each stream [B, T, D] by name, and the last
        token."""
        return dict(zip(self.names, self.streams(x, last), strict=True)), x[:, -1].clone()

    def streams(self, x: Tensor, last: Tensor | None) -> tuple[Tensor, ...]:
        """The streams in their order."""
        return token_shift(x, self.mix, last, dtype=product_dtype(x))
