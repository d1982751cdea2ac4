"""AdamW in torch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from linbench.kernels.adamw import Layout, Moments, Now

EPSILON = 1e-8
"""Term that keeps a division by the root of a square finite, as in the paper (1711.05101)."""


class Update:
    """Steps of AdamW for tensors of one layout; methods are those of `linbench.kernels.adamw.Update`."""

    def __init__(
        self, weights: Tensor, layout: "Layout", scales: Sequence[float], decaying: Sequence[float]
    ) -> None:
        self.layout = layout
        self.scale, self.decaying, replica = (torch.zeros_like(weights) for _ in range(3))
        for parts, values in ((self.scale, scales), (self.decaying, decaying)):
            for part, value in zip(layout.split(parts), values, strict=True):
                part.fill_(value)
        for part in layout.split(replica):
            part.copy_(torch.arange(layout.replicas)[:, None])
        self.replica = None if layout.replicas == 1 else replica.long()

    def norms(self, gradients: Tensor) -> Tensor:
        """Return the norm [R] of each replica's gradient."""
        one = self.replica is None
        parts = [gradients[None]] if one else [part for part in self.layout.split(gradients) if part.numel()]
        norms = torch.stack([torch.linalg.vector_norm(part, dim=1) for part in parts])
        together: Tensor = norms[0] if one else torch.linalg.vector_norm(norms, dim=0)
        return together

    def step(self, weights: Tensor, gradients: Tensor, moments: "Moments", now: "Now") -> None:
        """Update weights and moments in place."""
        (share, mean_bias, square_bias), (mean, square) = now.numbers.unbind(), moments
        rate, (beta1, beta2) = now.rates * share, now.betas
        if now.norms is not None:
            gradients *= self._spread((now.clip / (now.norms + 1e-6)).clamp(max=1.0), weights)
        mean.lerp_(gradients, 1 - beta1)
        square.mul_(beta2).addcmul_(gradients, gradients, value=1 - beta2)
        weights -= weights * (self.decaying * self.scale) * self._spread(rate * now.decays, weights)
        weights.addcdiv_(
            mean * self.scale * self._spread(-rate / mean_bias, weights),
            (square / square_bias.to(weights.dtype)).sqrt_().add_(EPSILON),
        )

    def _spread(self, of_replicas: Tensor, weights: Tensor) -> Tensor:
        """Return values [n], or [1] for a single replica, of values [R], in the dtype of the weights."""
        values = of_replicas.to(weights.dtype)
        return values if self.replica is None else values[self.replica]
