"""Numbers of nodes of a graph, in training and in tests."""

from functools import cache
from itertools import accumulate

import torch
from torch import Tensor

from linbench.tasks.base import Split
from linbench.tasks.random import Stream, constant

__all__ = ["FEWEST", "draw_size", "shuffle_first", "size_shares"]

FEWEST = 3
"""Nodes of the smallest graph."""


@cache
def size_shares(most: int, split: Split) -> tuple[tuple[int, float], ...]:
    """Return pairs of a number of nodes and its probability.

    Training has n = 3 ... most, with weight 1 / (n + sqrt(most)), so that small graphs are commoner. The
    other splits have the largest alone. This is the law of arXiv:2512.17351.
    """
    if split != "train":
        return ((most, 1.0),)
    weights = {n: 1 / (n + most**0.5) for n in range(FEWEST, most + 1)}
    total = sum(weights.values())
    return tuple((n, weight / total) for n, weight in weights.items())


def draw_size(stream: Stream, most: int, split: Split) -> Tensor:
    """Draw numbers of nodes [B, 1] by `size_shares`."""
    sizes, shares = zip(*size_shares(most, split), strict=True)
    ends = tuple(round(end * 2**32) for end in accumulate(shares))
    which = torch.searchsorted(constant(ends[:-1], stream.key.device), stream.bits(1), right=True)
    return constant(sizes, stream.key.device)[which]


def shuffle_first(stream: Stream, count: Tensor, most: int) -> Tensor:
    """Return 0 ... most - 1 with the first `count` [B, 1] in random order, before the others: [B, most]."""
    late = torch.arange(most, device=count.device) >= count
    return (stream.bits(most) + (late.to(torch.int64) << 32)).argsort(dim=1, stable=True)
