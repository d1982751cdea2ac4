"""Statements in a sequence of fixed length: their order, positions and distances."""

import torch
from torch import Tensor

from linbench.tasks.random import Stream, constant

__all__ = ["log2_distance", "log2_distance_size", "order_statements", "place_statements", "split_stream"]


def order_statements(stream: Stream, others: Tensor, *, writes: int, questions: int) -> Tensor:
    """Return the numbers of all statements in the order of time [B, writes + X + questions].

    Numbered are writes in the order of time, others, then questions. These come last, in any order.

    Args:
        stream: randomness.
        others: the number of the write that each other statement follows [B, X].
        writes: how many there are.
        questions: how many there are.
    """
    B, X = others.shape
    write, turn = (torch.arange(count, device=others.device) for count in (writes, X))
    when = [
        (X + 1) * write.expand(B, -1),
        (X + 1) * others + turn + 1,
        (X + 1) * writes + stream.bits(questions),
    ]
    return torch.cat(when, dim=1).argsort(dim=1, stable=True)


def place_statements(stream: Stream, lengths: Tensor, slack: int) -> Tensor:
    """Return positions [B, M] of statements that follow each other in this order.

    Before, between and after them are `slack` more places; every way to divide these up is equally likely.

    Args:
        stream: randomness.
        lengths: of the statements [M] or [B, M].
        slack: places that no statement takes.
    """
    count = lengths.shape[-1]
    slots = stream.permutation(count + slack)(torch.arange(count, device=lengths.device)).sort(dim=1).values
    further = lengths - 1
    return slots + further.cumsum(dim=-1) - further


def split_stream(stream: Stream, count: int) -> Stream:
    """Return `count` independent streams for every example: [B] -> [B * count]."""
    numbered = stream.key[:, None] + torch.arange(count, device=stream.key.device)
    return Stream.of(numbered.flatten(), seed=0, split="part")


def log2_distance(distance: Tensor) -> Tensor:
    """Return the base-2 logarithm of distances >= 1, rounded down."""
    powers = tuple(2**i for i in range(1, 62))
    return torch.bucketize(distance, constant(powers, distance.device), right=True)


def log2_distance_size(below: int) -> int:
    """Return the number that `log2_distance` stays below for distances below `below`."""
    return max(1, (below - 1).bit_length())
