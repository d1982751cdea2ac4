"""Initial values that several parts use."""

from typing import TypeVar

import torch
from torch import Tensor, nn

Kind = TypeVar("Kind", bound=nn.Linear)

CPU = torch.device("cpu")
"""The CPU by name, for tensors that are computed rather than drawn.

Models are also built on the meta device, without memory; simple arithmetic there loads a compiler, which
takes seconds.
"""


def indices(count: int) -> Tensor:
    """Return 0, 1, ... count - 1."""
    return torch.arange(count, device=CPU)


def zero_init(linear: Kind) -> Kind:
    """Set the weights of a linear layer to zero and return it, so that its residual branch starts as zero.

    Small recall models leave their initial plateau several times sooner this way (docs/decisions/0002).
    """
    nn.init.zeros_(linear.weight)
    return linear


def orthogonal(linear: nn.Linear, *, gain: float) -> None:
    """Draw orthogonal rows or columns, whichever are fewer, of length `gain`. arXiv:1312.6120."""
    if not linear.weight.is_meta:  # a sketch, whose weights have no memory
        nn.init.orthogonal_(linear.weight, gain=gain)
