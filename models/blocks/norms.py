"""The norm that has a weight, alone or with the gate that follows it."""

import torch
from torch import Tensor, nn

from linbench.kernels.norms import Activation, add_rms_norm, rms_norm
from linbench.kernels.operators import product_dtype


class RMSNorm(nn.Module):
    """x / sqrt(mean x^2 + eps) * weight over the last dimension. arXiv:1910.07467.

    Under torch.autocast the result comes in its dtype, since products of matrices follow: one pass less for each.
    """

    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor | None = None, activation: Activation | None = None) -> Tensor:
        """Any shape with `dim` last; times activation(gate), shaped as x."""
        return rms_norm(x, self.weight, gate=gate, activation=activation, eps=self.eps, dtype=product_dtype(x))

    def after(self, x: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
        """x + added, and its norm."""
        return add_rms_norm(x, added, self.weight, eps=self.eps, dtype=product_dtype(x))
