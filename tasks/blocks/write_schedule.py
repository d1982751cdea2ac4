"""Variables that are written several times: the order of writes, their values, and what they hold."""

from functools import cache
from itertools import accumulate, chain
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.blocks.timeline import split_stream
from linbench.tasks.random import Stream, constant, inverse

__all__ = ["Schedule", "Writes", "distinct_variables", "draw_values", "schedule_writes"]

Schedule = Literal["interleaved", "blockwise", "sequential"]


class Writes(NamedTuple):
    """The writes of an example.

    variable: the variable of each write, in the order of time [B, W]. write_numbers: the numbers of each
    variable's writes, the latest first, then -1 [B, V, R].
    """

    variable: Tensor
    write_numbers: Tensor

    def writes_held(self, variable: Tensor, until: Tensor) -> Tensor:
        """Return the numbers of the writes of `variable` [B, N] up to write `until` [B, N].

        They are [B, N, R], the latest first, then -1.
        """
        R = self.write_numbers.shape[2]
        numbers = self.write_numbers.gather(1, variable[:, :, None].expand(-1, -1, R))
        later = (numbers > until[:, :, None]).sum(dim=2, keepdim=True)
        place = torch.arange(R, device=later.device) + later
        return numbers.gather(2, place.clamp(max=R - 1)).masked_fill(place >= R, -1)

    def draw_written(self, stream: Stream, until: Tensor) -> Tensor:
        """Return a uniform variable among those written up to each write `until` [B, M]."""
        first = self.write_numbers.masked_fill(self.write_numbers < 0, self.variable.shape[1]).amin(dim=2)
        since, variable = first.sort(dim=1)
        number = stream.integers(until.shape[1], below=torch.searchsorted(since, until, right=True))
        return variable.gather(1, number)


def schedule_writes(stream: Stream, counts: tuple[int, ...], *, rounds: int, schedule: Schedule) -> Writes:
    """Return the writes of variables in a random order.

    Args:
        stream: randomness.
        counts: how often each variable is written.
        rounds: number of rounds with equally many variables; the writes of a round come after those of the
            last.
        schedule: order within a round.
    """
    B, device = stream.key.shape[0], stream.key.device
    V, W, R = len(counts), sum(counts), max(counts)
    owner = constant(tuple(v for v, count in enumerate(counts) for _ in range(count)), device)
    turn = constant(tuple(chain.from_iterable(map(range, counts))), device)
    lot = stream.bits(V if schedule == "sequential" else W)
    round_ = owner // (V // rounds)
    if schedule == "interleaved":
        when = (round_ << 32) + lot
    elif schedule == "blockwise":
        when = (R * round_ + turn << 32) + lot
    else:
        when = R * ((round_ << 32) + lot[:, owner]) + turn
    order = when.argsort(dim=1, stable=True)
    numbers = iter(range(W))
    table = constant(tuple(next(numbers) if j < count else W for count in counts for j in range(R)), device)
    write_numbers = torch.cat([inverse(order), torch.full((B, 1), -1, device=device)], dim=1)
    write_numbers = write_numbers[:, table].view(B, V, R)
    return Writes(owner[order], write_numbers.sort(dim=2, descending=True).values)


@cache
def distinct_variables(counts: tuple[int, ...], schedule: Schedule) -> Tensor:
    """Return the probabilities that n writes of one round are of 0, 1, ... variables: [W + 1, V + 1]."""
    V, W = len(counts), sum(counts)
    writes, variables = torch.arange(W + 1)[:, None], torch.arange(V + 1)
    if schedule == "blockwise":
        return (variables == writes.clamp(max=V)).double()
    share = torch.zeros(W + 1, V + 1, dtype=torch.float64)
    share[0] = variables == 0
    if schedule == "interleaved":
        # add one variable after another: `own` of the n writes are its own, the rest of those so far
        for so_far, count in zip(accumulate(counts, initial=0), counts, strict=False):
            with_it = 0 * share
            for own in range(count + 1):
                before = pad(share, (int(own > 0), 0, own, 0))[: W + 1, : V + 1]
                with_it = with_it + _hypergeometric(writes, own, count, so_far) * before
            share = with_it
        return share
    # share[n, v]: the probability that the first v of the variables so far have exactly n writes together
    for so_far, count in enumerate(counts, start=1):
        last = (variables.double() / so_far).clamp(max=1)
        share = (1 - last) * share + last * pad(share, (1, 0, count, 0))[: W + 1, : V + 1]
    # if v variables have fewer than n writes, one more has begun
    begun = pad(share, (0, 0, 1, 0)).cumsum(dim=0)[:-1]
    return pad(begun, (1, 0), value=1.0)[:, :-1] - begun


def _hypergeometric(drawn: Tensor, own: int, count: int, others: int) -> Tensor:
    """Return the probability that exactly `own` of `drawn` items are of a kind that has `count` items.

    Args:
        others: number of items of other kinds.
    """
    drawn = drawn.double()
    possible = (drawn >= own) & (drawn - own <= others)
    rest = (drawn - own).clamp(0, others)

    def ways(total: int, chosen: Tensor) -> Tensor:
        return (
            torch.lgamma(torch.tensor(total + 1.0, dtype=torch.float64))
            - torch.lgamma(chosen + 1)
            - torch.lgamma(total - chosen + 1)
        )

    log_ways = ways(count, torch.tensor(float(own), dtype=torch.float64)) + ways(others, rest)
    return (log_ways - ways(count + others, rest + own)).exp() * possible


def draw_values(stream: Stream, writes: Writes, *, values: int, more: int) -> Tensor:
    """Return values [B, W + more] below `values`: one per write, and `more` others.

    All differ if there are enough values; otherwise those of each variable differ.
    """
    V, R = writes.write_numbers.shape[1:]
    W, device = writes.variable.shape[1], writes.variable.device
    if W + more <= values:
        return stream.permutation(values)(torch.arange(W + more, device=device))
    of_variables = split_stream(stream.child("of variables"), V)
    own = of_variables.permutation(values)(torch.arange(R, device=device)).view(-1, V * R)
    number = writes.write_numbers.flatten(1)
    by_number = torch.zeros(len(own), W + 1, dtype=torch.int64, device=device)
    by_number = by_number.scatter(1, number.masked_fill(number < 0, W), own)[:, :W]
    return torch.cat([by_number, stream.child("more").integers(more, below=values)], dim=1)
