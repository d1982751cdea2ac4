"""Initial values that more than one part uses."""

from typing import TypeVar

import torch
from torch import Tensor, nn

Kind = TypeVar("Kind", bound=nn.Linear)

CPU = torch.device("cpu")
"""By name, for what is computed: on the device without memory, where a sketch is made, simple arithmetic
loads a compiler, which takes seconds."""


def indices(count: int) -> Tensor:
    """0, 1, ... count - 1."""
    return torch.arange(count, device=CPU)


def zero_init(linear: Kind) -> Kind:
    """The same layer with weights of zero: a residual branch that ends in it adds nothing at first.

    Small recall models leave their initial plateau several times sooner this way (docs/decisions/0002).
    """
    nn.init.zeros_(linear.weight)
    return linear


def orthogonal(linear: nn.Linear, *, gain: float) -> None:
    """Weights with orthogonal rows or columns, whichever are fewer, of length `gain` (1312.6120)."""
    if not linear.weight.is_meta:  # a sketch, whose weights have no memory
        nn.init.orthogonal_(linear.weight, gain=gain)
