"""Initial values that more than one part uses."""

from typing import TypeVar

import torch
from torch import nn

Kind = TypeVar("Kind", bound=nn.Linear)


def silent(linear: Kind) -> Kind:
    """The same layer with weights of zero: a residual branch that ends in it adds nothing at first.

    Small recall models leave their initial plateau several times sooner this way (docs/decisions/0002).
    """
    nn.init.zeros_(linear.weight)
    return linear


def orthogonal(linear: nn.Linear, *, gain: float) -> None:
    """Weights with orthogonal rows or columns, whichever are fewer, of length `gain` (1312.6120)."""
    # on the CPU by name: a sketch, on the device that has no memory, would load a compiler for it, which takes seconds
    drawn = torch.empty(linear.weight.shape, device="cpu")
    nn.init.orthogonal_(drawn, gain=gain)
    with torch.no_grad():
        linear.weight.copy_(drawn)
