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
    """Steps of AdamW for tensors of one layout; methods are those of `linbench.kernels.adamw.Update`.

    Several replicas go parameter by parameter, since numbers of a parameter [R, width] share all but the
    replica's rate, decay and clipping. A single one has all its parameters as one part, [1, n].
    """

    def __init__(
        self, weights: Tensor, layout: "Layout", scales: Sequence[float], decaying: Sequence[float]
    ) -> None:
        self.layout, self.alone = layout, layout.replicas == 1
        self.factors: list[tuple[Tensor | float, Tensor | float]] = list(zip(scales, decaying, strict=True))
        if self.alone:
            self.factors = [(_spread(weights, layout, scales), _spread(weights, layout, decaying))]

    def norms(self, gradients: Tensor) -> Tensor:
        """Return the norm [R] of each replica's gradient."""
        norms = torch.stack([torch.linalg.vector_norm(part, dim=1) for part in self._parts(gradients)])
        together: Tensor = norms[0] if self.alone else torch.linalg.vector_norm(norms, dim=0)
        return together

    def step(self, weights: Tensor, gradients: Tensor, moments: "Moments", now: "Now") -> None:
        """Update weights and moments in place."""
        dtype, (beta1, beta2) = weights.dtype, now.betas
        share, mean_bias, square_bias = now.numbers.unbind()
        rate = now.rates * share
        pull, push = ((rate * now.decays).to(dtype)[:, None], (-rate / mean_bias).to(dtype)[:, None])
        if now.norms is not None:
            shorter = (now.clip / (now.norms + 1e-6)).clamp(max=1.0).to(dtype)[:, None]
        parts = map(self._parts, (weights, gradients, *moments))
        for w, g, mean, square, (scale, decaying) in zip(*parts, self.factors, strict=True):
            if now.norms is not None:
                g *= shorter
            mean.lerp_(g, 1 - beta1)
            square.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            w -= w * (decaying * scale) * pull
            w.addcdiv_(mean * scale * push, (square / square_bias.to(dtype)).sqrt_().add_(EPSILON))

    def _parts(self, values: Tensor) -> list[Tensor]:
        """Return views of values [n], each [R, width]."""
        return [values[None]] if self.alone else self.layout.split(values)


def _spread(weights: Tensor, layout: "Layout", values: Sequence[float]) -> Tensor:
    """Return values [n] for all numbers of a replica alone, from one for each parameter; gaps have zeros."""
    spread = torch.zeros_like(weights)
    for part, value in zip(layout.split(spread), values, strict=True):
        part.fill_(value)
    return spread
