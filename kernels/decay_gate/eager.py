"""The gate in torch."""

import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32


def eager(step: Tensor, A_log: Tensor, bias: Tensor) -> Tensor:
    """Arguments and result as at the door."""
    wide = at_least_float32(step.dtype)
    return -A_log.exp() * F.softplus(step.to(wide) + bias)
