"""Random bits and permutations by integer hashing.

Each number depends on its key and its place alone, and is the same on every device.
"""

from torch import Tensor

from linbench.kernels.hashing import eager
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["bits", "mixed", "permuted"]


def mixed(x: Tensor, plus: int = 0, *, backend: Backend = "auto") -> Tensor:
    """Return 64 bits each of which depends on every bit of x + plus.

    It is the finaliser of SplitMix64, but that shifts keep the sign: x and -1 - x are one.

    Args:
        x: int64, of any shape.
        backend: "auto" takes the fastest that runs on this device.

    Raises ValueError: a backend that is not there or does not run on x.
    """
    if not uses_triton(x, backend):
        return eager.mixed(x + plus if plus else x)
    from linbench.kernels.hashing import triton

    y: Tensor = triton.mixed(x, plus)
    return y


def bits(key: Tensor, counter: int | Tensor, *, backend: Backend = "auto") -> Tensor:
    """Return an integer in [0, 2^32) for each counter of each key.

    Args:
        key: int64 [B].
        counter: int64 [M] or [B, M], or their number M for 0 ... M - 1. One row of keys or counters goes with
            every row of the other.
        backend: "auto" takes the fastest that runs on this device.

    Returns: int64 [B, M].

    Raises ValueError: a backend that is not there or does not run on key.
    """
    if not uses_triton(key, backend):
        return eager.bits(key, counter)
    from linbench.kernels.hashing import triton

    y: Tensor = (
        triton.bits(key, None, counter)
        if isinstance(counter, int)
        else triton.bits(key, counter, counter.shape[-1])
    )
    return y


def permuted(key: Tensor, x: Tensor, *, size: int, backend: Backend = "auto") -> Tensor:
    """Return where a permutation of 0 ... size - 1, another for each key, sends x.

    It is a Feistel network over pairs (left, right) in Z_a x Z_b, with a * b just at or above `size`. What it
    sends to one of the few points beyond `size` goes on to where these are sent.

    Args:
        key: int64 [B].
        x: int64 [M] or [B, M] in 0 ... size - 1, with size from 2 to 2^30.
        backend: "auto" takes the fastest that runs on this device.

    Returns: int64 [B, M].

    Raises ValueError: a backend that is not there or does not run on key.
    """
    if not uses_triton(key, backend):
        return eager.permuted(key, x, size)
    from linbench.kernels.hashing import triton

    y: Tensor = triton.permuted(key, x, size)
    return y
