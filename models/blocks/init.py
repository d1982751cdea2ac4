"""Initial values that several parts use."""

from typing import TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from linbench.common.settings import ABSENT, Settings

Kind = TypeVar("Kind", bound=nn.Linear)

CPU = torch.device("cpu")
"""The CPU by name, for tensors that are computed rather than drawn.

Models are also built on the meta device, without memory; simple arithmetic there loads a compiler, which
takes seconds.
"""

PUBLISHED_STD = 0.02
"""Standard deviation of what linear maps and embeddings start at in most published models.

zoology's and flash-linear-attention's backbones have it, as GPT-2 had.
"""

_KEPT = "_linbench_keeps_its_start"


class BranchSettings(Settings):
    """Settings of a branch of the residual stream."""

    silent: bool = Field(
        True,
        description=(
            "whether a layer's last map starts at zero, so that at first it adds nothing"
            " (docs/decisions/0002)"
        ),
        json_schema_extra={ABSENT: True},
    )


def indices(count: int) -> Tensor:
    """Return 0, 1, ... count - 1."""
    return torch.arange(count, device=CPU)


def keep(linear: Kind) -> Kind:
    """Mark the values that a map starts at as its variant's own, and return it.

    `draw_published` keeps them.
    """
    for parameter in linear.parameters():
        setattr(parameter, _KEPT, True)
    return linear


def zero_init(linear: Kind, *, silent: bool = True) -> Kind:
    """Set all of a linear map to zero, unless it shall not start silent, and return it.

    A residual branch that ends in it starts as zero. Small recall models leave their initial plateau several
    times sooner this way (docs/decisions/0002).
    """
    if not silent:
        return linear
    for parameter in linear.parameters():
        nn.init.zeros_(parameter)
    return keep(linear)


def orthogonal(linear: nn.Linear, *, gain: float) -> None:
    """Draw orthogonal rows or columns, whichever are fewer, of length `gain`. arXiv:1312.6120."""
    if not linear.weight.is_meta:  # a sketch, whose weights have no memory
        nn.init.orthogonal_(linear.weight, gain=gain)
    keep(linear)


def set_bias(linear: nn.Linear, bias: Tensor | float) -> None:
    """Let a map's bias start at given values, which `draw_published` keeps."""
    with torch.no_grad():
        linear.bias.copy_(torch.as_tensor(bias, device=CPU))
    setattr(linear.bias, _KEPT, True)


def draw_published(module: nn.Module, *kinds: type[nn.Module]) -> None:
    """Draw weights of all parts of some kinds anew from N(0, 0.02), and set their biases to zero.

    What `keep` or `set_bias` marked stays as it is.
    """
    for part in module.modules():
        if isinstance(part, kinds):
            for name, parameter in part.named_parameters(recurse=False):
                if hasattr(parameter, _KEPT):
                    continue
                if name == "bias":
                    nn.init.zeros_(parameter)
                else:
                    nn.init.normal_(parameter, std=PUBLISHED_STD)
