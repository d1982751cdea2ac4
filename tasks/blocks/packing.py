"""Instances of several lengths in rows of one length."""

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from linbench.tasks.base import IGNORE, Batch
from linbench.tasks.random import Stream

__all__ = ["Instances", "Pack", "instances_needed", "pack"]

Pack = Annotated[
    bool,
    Field(
        description=(
            "whether instances follow one another until a row is full, where the last one is cut off;"
            " false: one instance a row, then padding"
        )
    ),
]

UNFILLED = 2.0**-32
"""Share of rows that may be left with padding at their end; draws have 32 bits."""


class Instances(NamedTuple):
    """Instances of several lengths, one for each key of a stream [R].

    inputs: token ids [R, L]. length: how many of them belong to the instance [R]. positions, targets and
    slices [R, P], and facts [R, P, ...]: as in `Batch`, with positions counted from the instance's first
    token. ends: position of the last label of the answer that a place belongs to [R, P]; None: every place
    is an answer.
    """

    inputs: Tensor
    length: Tensor
    positions: Tensor
    targets: Tensor
    slices: dict[str, Tensor]
    facts: Mapping[str, Tensor] = MappingProxyType({})
    ends: Tensor | None = None


def pack(
    draw: Callable[[Stream], Instances], stream: Stream, *, seq_len: int, answers: int, instances: int
) -> Batch:
    """Draw instances one after another and concatenate them into rows.

    A row begins with its first instance. The last one is cut off at the row's end, and an answer with a label
    beyond it is not due. Instances that begin beyond it are left out. What no instance fills is token 0.

    Places stand in the order of the instances, used ones first. The fact "instance" [B, N] tells which
    instance of its row a place belongs to.

    Args:
        draw: makes an instance of every key of a stream, and of that key alone.
        stream: streams of the rows [B]; instance k is drawn from child "k".
        seq_len: T, tokens of a row.
        answers: N, places of a row. What is due must fit.
        instances: number of instances that are drawn for every row; 1 puts one into each.
    """
    rows = len(stream.key)
    keys = torch.stack([stream.child(str(k)).key for k in range(instances)], dim=1)
    drawn = draw(Stream(keys.flatten()))
    length = drawn.length.view(rows, instances)
    start = length.cumsum(dim=1) - length

    token = torch.arange(drawn.inputs.shape[1], device=keys.device)
    place = start[:, :, None] + token
    inside = (token < length[:, :, None]) & (place < seq_len)
    inputs = torch.zeros(rows, seq_len + 1, dtype=torch.int64, device=keys.device).scatter(
        1, place.where(inside, seq_len).flatten(1), drawn.inputs.reshape(rows, -1)
    )[:, :seq_len]

    ends = drawn.positions if drawn.ends is None else drawn.ends
    due = ((drawn.targets != IGNORE) & (start.view(-1, 1) + ends < seq_len)).view(rows, -1)
    number = torch.arange(due.shape[1], device=keys.device).expand_as(due)
    # of every place of the row, the place of an instance that it is
    source = torch.zeros(rows, answers + 1, dtype=torch.int64, device=keys.device).scatter(
        1, (due.cumsum(dim=1) - 1).where(due, answers).clamp(max=answers), number
    )[:, :answers]
    used = torch.arange(answers, device=keys.device) < due.sum(dim=1, keepdim=True)

    def collect(x: Tensor, unused: int = 0) -> Tensor:
        found = x.reshape(rows, due.shape[1], *x.shape[2:])
        extra = (1,) * (x.dim() - 2)
        found = found.take_along_dim(source.view(*source.shape, *extra), dim=1)
        return found.where(used.view(*used.shape, *extra), unused)

    which = number // drawn.positions.shape[1]
    return Batch(
        inputs,
        collect(start.view(-1, 1) + drawn.positions),
        collect(drawn.targets, IGNORE),
        {name: collect(x) for name, x in drawn.slices.items()},
        {"instance": collect(which)} | {name: collect(x) for name, x in drawn.facts.items()},
    )


@cache
def instances_needed(lengths: tuple[tuple[int, float], ...], seq_len: int) -> int:
    """Return how many instances fill a row of `seq_len` tokens in all but 2^-32 of cases.

    Args:
        lengths: pairs of a length and its probability. Lengths may be lower bounds of the true ones.
        seq_len: T.
    """
    filled = torch.zeros(seq_len, dtype=torch.float64)
    filled[0] = 1
    count = 0
    while filled.sum() > UNFILLED:
        # of the tokens of one instance more, where they do not fill the row
        filled, before = torch.zeros_like(filled), filled
        for length, share in lengths:
            filled[length:] += share * before[: max(0, seq_len - length)]
        count += 1
    return count
