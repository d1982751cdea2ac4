"""Variables that are written several times: in which order, with which values, and what each holds at a time."""

from functools import cache
from itertools import chain
from math import comb
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from linbench.tasks.blocks.timeline import parts
from linbench.tasks.random import Stream, constant, inverse

__all__ = ["Schedule", "Writes", "different_values", "met", "scheduled"]

Schedule = Literal["interleaved", "blockwise", "sequential"]


class Writes(NamedTuple):
    """variable: [B, W], whose write each is, in the order of time. turns: [B, V, R], the numbers of each variable's writes, the latest first, then -1."""

    variable: Tensor
    turns: Tensor

    def held(self, variable: Tensor, until: Tensor) -> Tensor:
        """The numbers of the writes of `variable` [B, N] up to write `until` [B, N], the latest first, then -1: [B, N, R]."""
        R = self.turns.shape[2]
        turns = self.turns.gather(1, variable[:, :, None].expand(-1, -1, R))
        later = (turns > until[:, :, None]).sum(dim=2, keepdim=True)
        place = torch.arange(R, device=later.device) + later
        return turns.gather(2, place.clamp(max=R - 1)).masked_fill(place >= R, -1)

    def one_written(self, stream: Stream, until: Tensor) -> Tensor:
        """A variable for each of `until` [B, M], any of those written up to that write being as likely."""
        first = self.turns.masked_fill(self.turns < 0, self.variable.shape[1]).amin(dim=2)
        since, who = first.sort(dim=1)
        number = stream.integers(until.shape[1], below=torch.searchsorted(since, until, right=True))
        return who.gather(1, number)


def scheduled(stream: Stream, counts: tuple[int, ...], *, rounds: int, schedule: Schedule) -> Writes:
    """`counts` says how often each variable is written; those of each of so many `rounds`, of as many variables each, come after those of the last."""
    B, V, W, R, device = stream.key.shape[0], len(counts), sum(counts), max(counts), stream.key.device
    owner = constant(tuple(v for v, count in enumerate(counts) for _ in range(count)), device)
    turn = constant(tuple(chain.from_iterable(map(range, counts))), device)
    chance = stream.bits(V if schedule == "sequential" else W)
    round_ = owner // (V // rounds)
    if schedule == "interleaved":
        when = (round_ << 32) + chance
    elif schedule == "blockwise":
        when = (R * round_ + turn << 32) + chance
    else:
        when = R * ((round_ << 32) + chance[:, owner]) + turn
    order = when.argsort(dim=1, stable=True)
    numbers = iter(range(W))
    table = constant(tuple(next(numbers) if j < count else W for count in counts for j in range(R)), device)
    turns = torch.cat([inverse(order), torch.full((B, 1), -1, device=device)], dim=1)[:, table].view(B, V, R)
    return Writes(owner[order], turns.sort(dim=2, descending=True).values)


@cache
def met(counts: tuple[int, ...], schedule: Schedule) -> list[list[float]]:
    """By how many writes of one round were made, from none to all: the probabilities that they are of 0, 1, ... different variables."""
    V, W = len(counts), sum(counts)
    if schedule == "blockwise":
        return [[float(variables == min(writes, V)) for variables in range(V + 1)] for writes in range(W + 1)]
    ways = [[0] * (V + 1) for _ in range(W + 1)]  # by writes and variables; sequential: of choosing variables that have all of these writes
    ways[0][0] = 1
    for count in counts:
        for writes in reversed(range(W + 1)):
            for variables in reversed(range(1, V + 1)):
                some = range(count, count + 1) if schedule == "sequential" else range(1, count + 1)
                ways[writes][variables] += sum(comb(count, n) * ways[writes - n][variables - 1] for n in some if n <= writes)
    if schedule == "interleaved":
        return [[way / comb(W, writes) for way in row] for writes, row in enumerate(ways)]
    begun = [[sum(ways[n][v] for n in range(writes)) / comb(V, v) for v in range(V + 1)] for writes in range(W + 1)]  # after v of them is a further one
    return [[float(writes == 0), *(row[v - 1] - row[v] for v in range(1, V + 1))] for writes, row in enumerate(begun)]


def different_values(stream: Stream, writes: Writes, *, values: int, more: int) -> Tensor:
    """[B, W + more] numbers below `values`, one per write and so many more: all different if that many are enough, else those of each variable are."""
    V, R = writes.turns.shape[1:]
    W, device = writes.variable.shape[1], writes.variable.device
    if W + more <= values:
        return stream.permutation(values)(torch.arange(W + more, device=device))
    own = parts(stream.child("of variables"), V).permutation(values)(torch.arange(R, device=device)).view(-1, V * R)
    places = writes.turns.flatten(1)
    own = torch.zeros(len(own), W + 1, dtype=torch.int64, device=device).scatter(1, places.masked_fill(places < 0, W), own)[:, :W]
    return torch.cat([own, stream.child("more").integers(more, below=values)], dim=1)
