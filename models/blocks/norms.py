"""Norms with weights, alone or followed by a gate."""

import torch
from torch import Tensor, nn

from linbench.kernels.dtypes import to_float32
from linbench.kernels.norms import ACTIVATIONS, Activation, add_rms_norm, layer_norm, rms_norm
from linbench.kernels.operators import product_dtype


class RMSNorm(nn.Module):
    """x / sqrt(mean x^2 + eps) * weight over the last dimension. arXiv:1910.07467.

    Under torch.autocast the result has its dtype: matrix products follow, and each would cast it again.
    """

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor | None = None, activation: Activation | None = None) -> Tensor:
        """Return the norm of x [..., dim], times activation(gate) if a gate is given, shaped as x."""
        return rms_norm(
            x, self.weight, gate=gate, activation=activation, eps=self.eps, dtype=product_dtype(x)
        )

    def after(self, x: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
        """Return x + added, and its norm."""
        return add_rms_norm(x, added, self.weight, eps=self.eps, dtype=product_dtype(x))


class CentredRMSNorm(nn.Module):
    """x / sqrt(mean x^2 + eps) * (1 + w) over the last dimension, with w at zero first: Qwen3-Next's.

    Weight decay of w pulls towards the plain norm, so w has it (`Backbone.parameter_rules`).
    """

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Return the norm of x [..., dim]."""
        return rms_norm(x, 1 + to_float32(self.weight), eps=self.eps, dtype=product_dtype(x))


class GroupRMSNorm(nn.Module):
    """x / sqrt(mean x^2 + eps) * weight with one mean per group of channels: Mamba-2's. arXiv:2405.21060."""

    def __init__(self, dim: int, groups: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.groups, self.eps = groups, eps

    def forward(self, x: Tensor, gate: Tensor | None = None, activation: Activation | None = None) -> Tensor:
        """Return the norm of x [..., dim], times activation(gate) if a gate is given, shaped as x.

        A group's channels are side by side. Computed in at least float32.
        """
        apart = to_float32(x).reshape(*x.shape[:-1], self.groups, -1)
        normed = rms_norm(apart, torch.ones_like(self.weight[: apart.shape[-1]]), eps=self.eps).flatten(-2)
        normed = normed * self.weight
        if gate is not None and activation is not None:
            normed = normed * ACTIVATIONS[activation](to_float32(gate))
        return normed.to(product_dtype(x))


class HeadLayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the channels of each head. arXiv:1803.08494.

    Each channel has its own weight and bias: a group norm whose groups are heads.
    """

    def __init__(self, heads: int, dim: int, eps: float = 1e-5, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(heads, dim))
        self.bias = nn.Parameter(torch.zeros(heads, dim)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor | None = None, activation: Activation | None = None) -> Tensor:
        """Return the norm of x [..., H, V], times activation(gate) if a gate is given, shaped as x.

        Computed in at least float32.
        """
        return layer_norm(
            x, self.weight, self.bias, gate=gate, activation=activation, eps=self.eps, dtype=product_dtype(x)
        )


class AllLayerNorm(HeadLayerNorm):
    """(x - mean) / sqrt(variance + eps) * weight + bias over all channels. arXiv:1607.06450."""

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__(1, dim, eps)

    def forward(self, x: Tensor, gate: Tensor | None = None, activation: Activation | None = None) -> Tensor:
        """Return the norm of x [..., dim], times activation(gate) if a gate is given, shaped as x."""
        gate = None if gate is None else gate[..., None, :]
        return super().forward(x[..., None, :], gate, activation).squeeze(-2)


def l1_norm(x: Tensor, eps: float = 1e-4) -> Tensor:
    """Return x / (sum x + eps) of features [..., K] >= 0; zero stays zero. arXiv:2102.11174."""
    wide = to_float32(x)
    return (wide / (wide.sum(dim=-1, keepdim=True) + eps)).to(x.dtype)
