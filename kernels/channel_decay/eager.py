"""The channel decay in torch."""

import torch
from torch import Tensor

from linbench.kernels.decays import LARGEST_LOG
from linbench.kernels.dtypes import at_least_float32


def eager(offset: Tensor, base: Tensor, bound: float | None) -> Tensor:
    """Return log decays; arguments are those of `channel_decay`."""
    wide = at_least_float32(base.dtype)
    base, offset = base.to(wide), offset.to(wide).view(*offset.shape[:-1], *base.shape)
    if bound is not None:
        return -bound * torch.sigmoid(base + offset)
    # the offset's share of the sum is bounded, and not the sum, whose gradient would then be laid out, and
    # added up, another way
    return -(base + torch.minimum(offset, LARGEST_LOG - base.detach())).exp()
