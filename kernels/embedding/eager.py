"""The embedding in torch."""

import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.dtypes import to_float32


def embedding(weight: Tensor, index: Tensor) -> Tensor:
    """Return weight[index]; arguments are those of the door."""
    wide = to_float32(weight)  # torch sums the gradient in the dtype of the weight
    return F.embedding(index, wide).to(weight.dtype)
