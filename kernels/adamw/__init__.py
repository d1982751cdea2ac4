"""One step of AdamW over all weights of a stack of models at once.

Each replica has a rate, decay and clipping of its own.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from torch import Tensor

from linbench.kernels.adamw import eager
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["Layout", "Moments", "Now", "Update", "update"]

_ALIGNED = 64
"""Each parameter begins at a multiple of this many numbers, so that matrix products load aligned memory."""


class Layout(NamedTuple):
    """Places of the parameters of R replicas in one tensor [n]: one after another, each [R, width].

    replicas: R. widths: numbers that each parameter has in one replica. starts: where each parameter begins,
    and after them n, the end.
    """

    replicas: int
    widths: tuple[int, ...]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, replicas: int, widths: Sequence[int]) -> "Layout":
        """Return the layout of parameters with these widths."""
        taken = [-(-replicas * width // _ALIGNED) * _ALIGNED for width in widths]
        return cls(replicas, tuple(widths), tuple(accumulate(taken, initial=0)))

    @property
    def size(self) -> int:
        """The numbers of the whole tensor, gaps included."""
        return self.starts[-1]

    def split(self, values: Tensor) -> list[Tensor]:
        """Return views of values [n], one for each parameter: [R, width]."""
        places = zip(self.starts, self.widths, strict=False)  # the last start is the end
        return [
            values[start : start + self.replicas * width].view(self.replicas, width)
            for start, width in places
        ]


class Moments(NamedTuple):
    """Running means of the gradient and of its square, [n] each."""

    mean: Tensor
    square: Tensor


class Now(NamedTuple):
    """Numbers that a step depends on besides gradients; the tensors lie on the device.

    numbers: [3] float64, of the step t: share of the peak rate, 1 - beta1^t, 1 - beta2^t. rates, decays: [R]
    float64, peak rate and decay of each replica. norms: [R], norms of the gradients, which are shortened to
    `clip` if they are longer; None: never.
    """

    numbers: Tensor
    rates: Tensor
    decays: Tensor
    norms: Tensor | None
    clip: float
    betas: tuple[float, float]


class Update(Protocol):
    """Steps of AdamW for tensors of one layout."""

    def norms(self, gradients: Tensor) -> Tensor:
        """Return the norm [R] of each replica's gradient, given all gradients [n]."""

    def step(self, weights: Tensor, gradients: Tensor, moments: Moments, now: Now) -> None:
        """Update weights [n] and moments in place by AdamW, arXiv:1711.05101; gradients may change."""


def update(
    weights: Tensor,
    layout: Layout,
    *,
    scales: Sequence[float],
    decaying: Sequence[float],
    backend: Backend = "auto",
) -> Update:
    """Return what updates weights [n] and all tensors that are laid out as they are.

    Args:
        scales, decaying: factors on the rate and on the decay, one for each parameter.
        backend: "auto" takes the fastest that runs on the device of the weights.

    Raises ValueError: a backend that is not there or does not run on the weights.
    """
    if not uses_triton(weights, backend):
        return eager.Update(weights, layout, scales, decaying)
    from linbench.kernels.adamw import triton

    return triton.Update(weights, layout, scales, decaying)
