"""Token shift in torch."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def before(x: Tensor, last: Tensor | None) -> Tensor:
    """Return x [B, T, D] one token later: first `last` [B, D], the token before x (None: zeros)."""
    first = torch.zeros_like(x[:, 0]) if last is None else last.to(x.dtype)
    return torch.cat([first[:, None], x[:, :-1]], dim=1)


def token_shift(
    x: Tensor, mix: Tensor, last: Tensor | None, offset: Sequence[Tensor] | None, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Return the streams; arguments are those of the door."""
    back = before(x, last) - x
    if offset is not None:
        return _by_offset(x, back, mix, offset, dtype)
    return (x + mix[:, None, None] * back).to(dtype).unbind()


def token_shift_by_token(
    x: Tensor,
    first: Tensor,
    offset: Callable[[Tensor], Sequence[Tensor]],
    mix: Tensor,
    last: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, ...]:
    """Return the streams; arguments are those of the door."""
    back = before(x, last) - x
    return _by_offset(x, back, mix, offset((x + first * back).to(dtype)), dtype)


def _by_offset(
    x: Tensor, back: Tensor, mix: Tensor, offset: Sequence[Tensor], dtype: torch.dtype
) -> tuple[Tensor, ...]:
    return tuple(
        (x + (own + given) * back).to(dtype) for own, given in zip(mix.unbind(), offset, strict=True)
    )
