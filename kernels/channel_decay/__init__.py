"""The decay of each channel of a memory, from a base of its own and an offset that the token gives."""

from torch import Tensor

from linbench.kernels.channel_decay.eager import eager
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["VERSION", "channel_decay"]

VERSION = 0
"""Version, 0 until a change here changes results.

From then on it is part of the identity of every cell that uses this family.
"""


def channel_decay(
    offset: Tensor, base: Tensor, *, bound: float | None = None, backend: Backend = "auto"
) -> Tensor:
    """Return log decays -exp(base + offset), as RWKV-6 (arXiv:2404.05892).

    With a bound they are -bound sigmoid(base + offset), as RWKV-7 (2503.14456).

    Args:
        offset: [..., H K].
        base: [H, K].
        bound: the logarithm of the decay stays above -bound; None is no bound.
        backend: "auto" takes the fastest that runs on this device.

    Returns: log decays [..., H, K] <= 0, in at least float32. Without a bound they are at least -e^88, which
    leaves nothing.

    Raises ValueError: shapes that do not fit together, a backend that is not there or does not run on offset.
    """
    if base.ndim != 2 or offset.shape[-1] != base.numel():
        raise ValueError(f"offset [..., H K] and base [H, K], not {[tuple(offset.shape), tuple(base.shape)]}")
    if not uses_triton(offset, backend):
        return eager(offset, base, bound)
    from linbench.kernels.channel_decay import triton

    return triton.channel_decay(offset, base, bound)
