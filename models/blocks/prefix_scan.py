"""Prefix sums and maxima over many tokens, by many threads; torch's own go from token to token."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 512
"""Tokens that one thread goes through; up to this many are summed in torch's own order."""

NARROW = 128
"""Channels up to which torch's own scan along contiguous tokens is faster.

It gives many threads to each channel: of 16 channels, on an H200, it is 6 times as fast.
"""


def running_sum(x: Tensor) -> Tensor:
    """Return x_1 + ... + x_t of x [B, T, D]."""
    return _scan_in_chunks(x, lambda part, dim: part.cumsum(dim), torch.add, neutral=0.0)


def running_maximum(x: Tensor) -> Tensor:
    """Return max(x_1, ..., x_t) of x [B, T, D]."""
    return _scan_in_chunks(x, lambda part, dim: part.cummax(dim).values, torch.maximum, neutral=float("-inf"))


def _scan_in_chunks(
    x: Tensor,
    scan: Callable[[Tensor, int], Tensor],
    combine: Callable[[Tensor, Tensor], Tensor],
    *,
    neutral: float,
) -> Tensor:
    """Scan all chunks at once, then combine each with the result of those before it."""
    length = x.shape[1]
    if length <= CHUNK:
        return scan(x, 1)
    if x.shape[2] <= NARROW:
        return scan(x.mT, 2).mT
    padded = F.pad(x, (0, 0, 0, -length % CHUNK), value=neutral)
    chunks = scan(padded.view(len(x), -1, CHUNK, x.shape[2]), 2)  # [B, chunks, CHUNK, D]
    totals = scan(chunks[:, :-1, -1], 1)
    before = F.pad(totals, (0, 0, 1, 0), value=neutral)
    return combine(chunks, before[:, :, None]).flatten(1, 2)[:, :length]
