"""Random bits and permutations by integer hashing: the same on every device, each a function of its key and
its place alone."""

from torch import Tensor

from linbench.kernels.hashing import eager
from linbench.kernels.operators import Backend, uses_triton

__all__ = ["bits", "mixed", "permuted"]


def mixed(x: Tensor, plus: int = 0, *, backend: Backend = "auto") -> Tensor:
    """64 bits each of which depends on every bit of x + plus (the finaliser of SplitMix64, but that shifts
    keep the sign: x and -1 - x are one).

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
    """Integers in [0, 2^32), one for each counter of each key.

    Args:
        key: int64 [B].
        counter: int64 [M] or [B, M], or for 0 ... M - 1 their number M. Of one row of keys or counters there
            is one for all of the other.
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
    """Where a permutation of 0 ... size - 1, another for each key, sends x.

    A Feistel network over pairs (left, right) in Z_a x Z_b, with a * b just at or above `size`. What it sends
    to one of the few points beyond `size` goes on to where these are sent.

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
