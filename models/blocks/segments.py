"""Segments of a sequence that stand at fixed positions; the tokens of an unfinished one are read again."""

import torch
from torch import Tensor


def in_segments(kept: Tensor, new: Tensor, place: Tensor, size: int) -> Tensor:
    """Return kept and new tokens one after the other in whole segments, with zeros after the last.

    Args:
        kept: tokens [B, S, ...] of each row's unfinished segment, of which the first `place` count.
        new: the tokens that follow [B, T, ...].
        place: number of tokens in the unfinished segment [B], at most S and less than `size`.
        size: tokens of a segment.

    Returns: [B, N, ...], N a multiple of `size` and at least size - 1 + T, in the dtype of `kept`.
    """
    length = new.shape[1]
    count = -(-(size - 1 + length) // size)
    zeros = kept.new_zeros(len(kept), count * size - kept.shape[1], *kept.shape[2:])
    at = place[:, None] + torch.arange(length, device=place.device)
    return torch.cat([kept, zeros], dim=1).scatter(1, _like(at, new), new.to(kept.dtype))


def at_places(x: Tensor, place: Tensor, length: int) -> Tensor:
    """Return the tokens [B, length, ...] of x [B, N, ...] from `place` [B] on."""
    at = place[:, None] + torch.arange(length, device=place.device)
    return x.gather(1, _like(at, x))


def unfinished(tokens: Tensor, end: Tensor, size: int, places: int) -> Tensor:
    """Return the tokens of each row's unfinished segment [B, places, ...], with zeros after the last.

    Args:
        tokens: in whole segments [B, N, ...].
        end: number of each row's tokens [B].
        size: tokens of a segment.
        places: how many are returned, at least as many as any row has left.
    """
    at = (end // size * size)[:, None] + torch.arange(places, device=end.device)
    found = tokens.gather(1, _like(at.clamp(max=tokens.shape[1] - 1), tokens))
    return torch.where(_as_wide(at < end[:, None], tokens), found, 0.0)


def _as_wide(x: Tensor, like: Tensor) -> Tensor:
    return x.view(*x.shape, *[1] * (like.dim() - 2))


def _like(at: Tensor, x: Tensor) -> Tensor:
    return _as_wide(at, x).expand(*at.shape, *x.shape[2:])
