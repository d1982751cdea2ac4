"""Token shift: each of several maps reads a mixture of its own of a token and the one before."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from linbench.kernels.operators import Backend, uses_triton
from linbench.kernels.token_shift import eager

__all__ = ["VERSION", "token_shift", "token_shift_by_token"]

VERSION = 0
"""Version, 0 until a change here changes results.

From then on it is part of the identity of every cell that uses this family.
"""


def token_shift(
    x: Tensor,
    mix: Tensor,
    last: Tensor | None = None,
    *,
    offset: Sequence[Tensor] | None = None,
    dtype: torch.dtype | None = None,
    backend: Backend = "auto",
) -> tuple[Tensor, ...]:
    """Return x_t + (mix_n + offset_n,t) * (x_{t-1} - x_t) for each of N streams.

    RWKV (arXiv:2305.13048); with an offset RWKV-6 (2404.05892).

    Args:
        x: [B, T, D].
        mix: [N, D].
        last: [B, D], the token before x; None is zeros.
        offset: added to the mix, [B, T, D] for each stream; None is no offset.
        dtype: dtype of the streams; None is that of x.
        backend: "auto" takes the fastest that runs on this device.

    Returns: N streams [B, T, D].

    Raises ValueError: shapes that do not fit together, a backend that is not there or does not run on x.
    """
    _fit(x, mix, last)
    if offset is not None and [each.shape for each in offset] != [x.shape] * len(mix):
        raise ValueError(
            f"offset has a tensor shaped as x, {tuple(x.shape)}, for each of {len(mix)} streams, not"
            f" {[tuple(each.shape) for each in offset]}"
        )
    if not uses_triton(x, backend):
        return eager.token_shift(x, mix, last, offset, dtype or x.dtype)
    from linbench.kernels.token_shift import operator

    return operator.token_shift(x, mix, last, offset, dtype or x.dtype)


def token_shift_by_token(
    x: Tensor,
    first: Tensor,
    offset: Callable[[Tensor], Sequence[Tensor]],
    mix: Tensor,
    last: Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
    backend: Backend = "auto",
) -> tuple[Tensor, ...]:
    """Return `token_shift` with offsets that are read from a first mixture, x_t + first * (x_{t-1} - x_t).

    Args:
        first: [D].
        offset: from that mixture [B, T, D] to a tensor [B, T, D] for each stream.

    Other arguments, the result and errors are those of `token_shift`.
    """
    _fit(x, mix, last)
    if first.shape != mix.shape[1:]:
        raise ValueError(f"first [D] and mix [N, D], not {[*map(tuple, (first.shape, mix.shape))]}")
    if not uses_triton(x, backend):
        return eager.token_shift_by_token(x, first, offset, mix, last, dtype or x.dtype)
    (read,) = token_shift(x, first[None], last, dtype=dtype, backend=backend)
    return token_shift(x, mix, last, offset=offset(read), dtype=dtype, backend=backend)


def _fit(x: Tensor, mix: Tensor, last: Tensor | None) -> None:
    if x.dim() != 3 or x.shape[1] < 1 or mix.dim() != 2 or len(mix) < 1 or mix.shape[1] != x.shape[2]:
        raise ValueError(
            f"x [B, T, D] with T >= 1 and mix [N, D] with N >= 1, not {[*map(tuple, (x.shape, mix.shape))]}"
        )
    if last is not None and last.shape != (len(x), x.shape[2]):
        raise ValueError(f"last must be [B, D] = {(len(x), x.shape[2])}, not {tuple(last.shape)}")
