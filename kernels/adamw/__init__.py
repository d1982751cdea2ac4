"""One step of AdamW over all weights of a stack of models at once.

Each replica has a rate, decay and clipping of its own.
"""

from typing import NamedTuple

from torch import Tensor

from linbench.kernels.adamw import eager
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["Moments", "adamw"]


class Moments(NamedTuple):
    """Running means of the gradient and of its square, [R, n] each."""

    mean: Tensor
    square: Tensor


def adamw(
    weights: Tensor,
    gradients: Tensor,
    moments: Moments,
    now: Tensor,
    *,
    rates: Tensor,
    decays: Tensor,
    scale: Tensor,
    decaying: Tensor,
    norms: Tensor | None,
    clip: float,
    betas: tuple[float, float],
    backend: Backend = "auto",
) -> None:
    """Update weights and moments in place by AdamW, arXiv:1711.05101; gradients may be overwritten.

    Args:
        weights, gradients: [R, n].
        now: [3] float64, numbers that depend on the step t alone: share of the peak rate, 1 - beta1^t, 1 -
            beta2^t.
        rates, decays: [R] float64, peak rate and decay of each replica.
        scale, decaying: [n] in the dtype of the weights, factors on the rate and on the decay of each weight.
        norms: [R], norms of the gradients, which are shortened to `clip` if they are longer; None: never.
        backend: "auto" takes the fastest that runs on this device.

    Raises ValueError: a backend that is not there or does not run on the weights.
    """
    if not uses_triton(weights, backend):
        step = eager.adamw
    else:
        from linbench.kernels.adamw import triton

        step = triton.adamw
    step(
        weights,
        gradients,
        moments.mean,
        moments.square,
        now,
        rates,
        decays,
        scale,
        decaying,
        norms,
        clip,
        betas,
    )
