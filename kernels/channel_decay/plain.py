"""The same in torch."""

import torch
from torch import Tensor

from linbench.kernels.decays import LARGEST_LOG
from linbench.kernels.wide import at_least_float32


def plain(offset: Tensor, base: Tensor, bound: float | None) -> Tensor:
    """Arguments and result as at the door."""
    wide = at_least_float32(base.dtype)
    logit = base.to(wide) + offset.to(wide).view(*offset.shape[:-1], *base.shape)
    return -logit.clamp(max=LARGEST_LOG).exp() if bound is None else -bound * torch.sigmoid(logit)
