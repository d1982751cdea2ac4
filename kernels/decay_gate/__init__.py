"""The gate of a memory that forgets: from a projection of the token to the logarithm of its decay."""

from torch import Tensor

from linbench.kernels.decay_gate.eager import eager
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["VERSION", "decay_gate"]

VERSION = 1
"""Version, raised whenever a change here changes results.

It is part of the identity of every cell that uses this family.
"""


def decay_gate(step: Tensor, A_log: Tensor, bias: Tensor, *, backend: Backend = "auto") -> Tensor:
    """Return log decays -exp(A_log) softplus(step + bias), as Mamba-2 (arXiv:2405.21060).

    Args:
        step: [..., H].
        A_log, bias: [H].
        backend: "auto" takes the fastest that runs on this device.

    Returns: [..., H] <= 0, in at least float32.

    Raises ValueError: shapes that do not fit together, a backend that is not there or does not run on step.
    """
    if not A_log.shape == bias.shape == step.shape[-1:]:
        raise ValueError(
            f"step [..., H], A_log [H], bias [H], not {[*map(tuple, (step.shape, A_log.shape, bias.shape))]}"
        )
    if not uses_triton(step, backend):
        return eager(step, A_log, bias)
    from linbench.kernels.decay_gate import triton

    return triton.decay_gate(step, A_log, bias)
