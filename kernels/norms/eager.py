"""Norms in torch."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.dtypes import to_float32

Activation = Literal["swish", "sigmoid"]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"swish": F.silu, "sigmoid": torch.sigmoid}


def l2_norm(x: Tensor, eps: float) -> Tensor:
    """Return x with norms of one; arguments are those of the door."""
    wide = to_float32(x)
    return (wide * torch.rsqrt(wide.square().sum(dim=-1, keepdim=True) + eps)).to(x.dtype)


def rms_norm(
    x: Tensor,
    weight: Tensor,
    gate: Tensor | None,
    activation: Activation | None,
    eps: float,
    dtype: torch.dtype,
) -> Tensor:
    """Return the norm; arguments are those of the door."""
    wide = to_float32(x)
    y = F.rms_norm(wide, weight.shape, weight.to(wide.dtype), eps)
    if gate is not None and activation is not None:
        y = y * ACTIVATIONS[activation](gate.to(wide.dtype))
    return y.to(dtype)


def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gate: Tensor | None,
    activation: Activation | None,
    eps: float,
    dtype: torch.dtype,
) -> Tensor:
    """Return the norm; arguments are those of the door."""
    wide = to_float32(x)
    y = F.layer_norm(wide, wide.shape[-1:], eps=eps) * weight
    y = y if bias is None else y + bias
    if gate is not None and activation is not None:
        y = y * ACTIVATIONS[activation](gate.to(y.dtype))
    return y.to(dtype)
