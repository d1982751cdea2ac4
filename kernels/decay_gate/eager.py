"""The decay gate in torch."""

import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32


def eager(step: Tensor, A_log: Tensor, bias: Tensor) -> Tensor:
    """Return log decays; arguments are those of `decay_gate`."""
    wide = at_least_float32(step.dtype)
    return -A_log.exp() * F.softplus(step.to(wide) + bias)
