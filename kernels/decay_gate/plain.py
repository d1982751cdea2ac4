"""The gate in torch."""

import torch
import torch.nn.functional as F
from torch import Tensor


def plain(step: Tensor, A_log: Tensor, bias: Tensor) -> Tensor:
    """Arguments and result as at the door."""
    wide = torch.promote_types(step.dtype, torch.float32)
    return -A_log.exp() * F.softplus(step.to(wide) + bias)
