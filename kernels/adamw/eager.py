"""AdamW in torch."""

from torch import Tensor

EPSILON = 1e-8
"""Term that keeps a division by the root of a square finite, as in the paper (1711.05101)."""


def adamw(
    weights: Tensor, gradients: Tensor, mean: Tensor, square: Tensor,
    now: Tensor, rates: Tensor, decays: Tensor, scale: Tensor, decaying: Tensor,
    norms: Tensor | None, clip: float, betas: tuple[float, float],
) -> None:  # fmt: skip
    """Update weights and moments in place; arguments are those of `linbench.kernels.adamw.adamw`."""
    share, mean_bias, square_bias = now.unbind()
    rate, dtype = rates * share, weights.dtype
    if norms is not None:
        gradients *= (clip / (norms + 1e-6)).clamp(max=1.0)[:, None]
    mean.lerp_(gradients, 1 - betas[0])
    square.mul_(betas[1]).addcmul_(gradients, gradients, value=1 - betas[1])
    weights -= weights * (decaying * scale) * (rate * decays).to(dtype)[:, None]
    weights.addcdiv_(
        mean * scale * (-rate / mean_bias).to(dtype)[:, None],
        (square / square_bias.to(dtype)).sqrt_().add_(EPSILON),
    )
