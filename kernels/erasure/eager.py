"""RWKV-7's keys in torch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32


def eager(
    k: Tensor, offset: Tensor, base: Tensor, k_k: Tensor, k_a: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return three vectors; arguments are those of `erasure`."""
    wide = at_least_float32(base.dtype)
    rate = torch.sigmoid(base.to(wide) + offset.to(wide).view(k.shape))
    erased = F.normalize((k * k_k).to(wide), dim=-1, eps=1e-12)
    return (k * (1 + (rate - 1) * k_a)).to(dtype), (-erased).to(dtype), (erased * rate).to(dtype)
