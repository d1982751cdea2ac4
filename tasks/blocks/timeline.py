"""Statements in a sequence of fixed length: where they stand, and how far apart."""

import torch
from torch import Tensor

from linbench.tasks.random import Stream, constant

__all__ = ["log2_distance", "log2_distance_size", "place_statements", "split_stream"]


def place_statements(stream: Stream, lengths: Tensor, slack: int) -> Tensor:
    """Where statements of `lengths` [M] or [B, M] start that stand in this order: [B, M].

    Before, between and after them are `slack` more places; every way to divide these up is as likely as any
    other.
    """
    count = lengths.shape[-1]
    slots = stream.permutation(count + slack)(torch.arange(count, device=lengths.device)).sort(dim=1).values
    further = lengths - 1
    return slots + further.cumsum(dim=-1) - further


def split_stream(stream: Stream, count: int) -> Stream:
    """As many independent streams for every example: [B] -> [B * count]."""
    numbered = stream.key[:, None] + torch.arange(count, device=stream.key.device)
    return Stream.of(numbered.flatten(), seed=0, split="part")


def log2_distance(distance: Tensor) -> Tensor:
    """The logarithm of distances of at least 1, to base 2, rounded down."""
    powers = tuple(2**i for i in range(1, 62))
    return torch.bucketize(distance, constant(powers, distance.device), right=True)


def log2_distance_size(below: int) -> int:
    """The number that `log2_distance` of distances below `below` stay below."""
    return max(1, (below - 1).bit_length())
