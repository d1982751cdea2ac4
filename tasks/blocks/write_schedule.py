"""Variables that are written several times: in which order, with which values, and what each holds at a
time."""

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
    """variable: [B, W], whose write each is, in the order of time. turns: [B, V, R], the numbers of each
    variable's writes, the latest first, then -1."""

    variable: Tensor
    write_numbers: Tensor

    def writes_held(self, variable: Tensor, until: Tensor) -> Tensor:
        """The numbers of the writes of `variable` [B, N] up to write `until` [B, N], the latest first, then
        -1: [B, N, R]."""
        R = self.write_numbers.shape[2]
        turns = self.write_numbers.gather(1, variable[:, :, None].expand(-1, -1, R))
        later = (turns > until[:, :, None]).sum(dim=2, keepdim=True)
        place = torch.arange(R, device=later.device) + later
        return turns.gather(2, place.clamp(max=R - 1)).masked_fill(place >= R, -1)

    def draw_written(self, stream: Stream, until: Tensor) -> Tensor:
        """A variable for each of `until` [B, M], any of those written up to that write being as likely."""
        first = self.write_numbers.masked_fill(self.write_numbers < 0, self.variable.shape[1]).amin(dim=2)
        since, who = first.sort(dim=1)
        number = stream.integers(until.shape[1], below=torch.searchsorted(since, until, right=True))
        return who.gather(1, number)


def schedule_writes(stream: Stream, counts: tuple[int, ...], *, rounds: int, schedule: Schedule) -> Writes:
    """`counts` says how often each variable is written; those of each of so many `rounds`, of as many
    variables each, come after those of the last."""
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
def distinct_variables(counts: tuple[int, ...], schedule: Schedule) -> Tensor:
    """[W + 1, V + 1] float64, by how many writes of one round were made, the probabilities that they are of
    0, 1, ... different variables."""
    V, W = len(counts), sum(counts)
    writes, variables = torch.arange(W + 1)[:, None], torch.arange(V + 1)
    if schedule == "blockwise":
        return (variables == writes.clamp(max=V)).double()
    share = torch.zeros(W + 1, V + 1, dtype=torch.float64)
    share[0] = variables == 0
    if schedule == "interleaved":
        # of the variables so far, drawn one after another: how many writes of each are among so many of all
        for so_far, count in zip(accumulate(counts, initial=0), counts, strict=False):
            share = sum(
                (
                    _hypergeometric(writes, own, count, so_far)
                    * pad(share, (int(own > 0), 0, own, 0))[: W + 1, : V + 1]
                    for own in range(count + 1)
                ),
                0 * share,
            )
        return share
    # by writes and variables: that so many variables, any of those so far, have just so many writes together
    for so_far, count in enumerate(counts, start=1):
        last = (variables.double() / so_far).clamp(max=1)
        share = (1 - last) * share + last * pad(share, (1, 0, count, 0))[: W + 1, : V + 1]
    # that so many have fewer writes, so that one more has begun
    begun = pad(share, (0, 0, 1, 0)).cumsum(dim=0)[:-1]
    return pad(begun, (1, 0), value=1.0)[:, :-1] - begun


def _hypergeometric(drawn: Tensor, own: int, count: int, others: int) -> Tensor:
    """The probability that of so many items drawn just `own` are of a kind of which there are `count`, beside
    so many others."""
    drawn = drawn.double()
    possible = (drawn >= own) & (drawn - own <= others)
    rest = (drawn - own).clamp(0, others)

    def ways(total: int, chosen: Tensor) -> Tensor:
        return (
            torch.lgamma(torch.tensor(total + 1.0, dtype=torch.float64))
            - torch.lgamma(chosen + 1)
            - torch.lgamma(total - chosen + 1)
        )

    found = (
        ways(count, torch.tensor(float(own), dtype=torch.float64))
        + ways(others, rest)
        - ways(count + others, rest + own)
    )
    return found.exp() * possible


def draw_values(stream: Stream, writes: Writes, *, values: int, more: int) -> Tensor:
    """[B, W + more] numbers below `values`, one per write and so many more: all different if that many are
    enough, else those of each variable are."""
    V, R = writes.write_numbers.shape[1:]
    W, device = writes.variable.shape[1], writes.variable.device
    if W + more <= values:
        return stream.permutation(values)(torch.arange(W + more, device=device))
    own = (
        split_stream(stream.child("of variables"), V)
        .permutation(values)(torch.arange(R, device=device))
        .view(-1, V * R)
    )
    places = writes.write_numbers.flatten(1)
    own = torch.zeros(len(own), W + 1, dtype=torch.int64, device=device).scatter(
        1, places.masked_fill(places < 0, W), own
    )[:, :W]
    return torch.cat([own, stream.child("more").integers(more, below=values)], dim=1)
