"""People with names and facts, as in the biographies bioS (2404.05405, 2512.17351), a token for each."""

from functools import cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.tasks.random import Stream, constant

__all__ = ["BIRTHDAY", "EMPLOYER", "SEAT", "VALUES", "People"]

VALUES = ("month", "day", "year", "city", "university", "major", "employer", "work city")
"""Names of the values that are known of a person."""

BIRTHDAY, EMPLOYER, SEAT = 3, 6, 7
"""Number of values in a birthday, which come first; places of the employer and its seat among the values."""

_NAMES = (400, 400, 1000)
_POOLS = (12, 28, 200, 200, 300, 100, 263, 133)
_CALENDAR = 2
"""Number of pools, months and days, that are as large in smaller worlds."""


class People(NamedTuple):
    """People, numbered from 0, whose names and values are drawn once.

    Names are different, all equally likely. Values are independent and uniform in their pools, but for the
    work city, which is the seat of the employer; seats are spread evenly over employers.

    size: number of people. divisor: what the published pools are divided by. seed: seed of the draw.
    """

    size: int
    divisor: int
    seed: int

    @property
    def names(self) -> tuple[int, ...]:
        """Pools of the first, middle and last name."""
        return tuple(pool // self.divisor for pool in _NAMES)

    @property
    def pools(self) -> tuple[int, ...]:
        """Pools of `VALUES`."""
        return _POOLS[:_CALENDAR] + tuple(pool // self.divisor for pool in _POOLS[_CALENDAR:])

    @property
    def tokens(self) -> int:
        """Number of tokens: each part of a name and each value has its own."""
        return sum(self.names + self.pools)

    @property
    def possible_names(self) -> int:
        """Number of names there can be, N0."""
        return prod(self.names)

    @property
    def possible_values(self) -> int:
        """Number of values that a person can have, S0: of all but the work city."""
        return prod(self.pools[:SEAT])

    def named(self, person: Tensor) -> Tensor:
        """Return the numbers [B] of the names of people [B]."""
        permutation = self._stream(person, "names").permutation(self.possible_names)
        return permutation(person)[0]

    def describe(self, person: Tensor) -> Tensor:
        """Return the tokens [B, 3 + 8] of names and `VALUES` of people [B], counted from 0."""
        _, middle, last = self.names
        name = self.named(person)
        stream = Stream.of(person, seed=self.seed, split="people").child("values")
        values = stream.integers(SEAT, below=constant(self.pools[:SEAT], person.device)[None])
        spread = self._stream(person, "seats").permutation(self.pools[EMPLOYER])
        seat = spread(values[:, EMPLOYER])[0] % self.pools[SEAT]
        parts = torch.stack([name // (middle * last), name // last % middle, name % last], dim=1)
        return torch.cat([parts, values, seat[:, None]], dim=1) + self._offsets(person.device)

    def recognise(self, tokens: Tensor) -> Tensor:
        """Return the people [B] with names of these tokens [B, 3]; somebody, where nobody has the name."""
        _, middle, last = self.names
        first, second, third = (tokens - self._offsets(tokens.device)[:3]).unbind(dim=1)
        named, person = _in_order(self, tokens.device)
        place = torch.searchsorted(named, (first * middle + second) * last + third)
        return person[place.clamp(max=self.size - 1)]

    def commonest(self) -> tuple[float, ...]:
        """Return, for each of `VALUES`, the share of people with the value that is the commonest."""
        return _commonest(self)

    def _stream(self, like: Tensor, split: str) -> Stream:
        """Return the one stream of what all people share."""
        return Stream.of(like.new_zeros(1), seed=self.seed, split=split)

    def _offsets(self, device: torch.device) -> Tensor:
        sizes = self.names + self.pools
        return constant(tuple(sum(sizes[:i]) for i in range(len(sizes))), device)


@cache
def _in_order(people: People, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the numbers of all names in order, and whose they are, both [size]."""
    ordered = people.named(torch.arange(people.size, device=device)).sort()
    return ordered.values, ordered.indices


@cache
def _commonest(people: People) -> tuple[float, ...]:
    values = people.describe(torch.arange(people.size))[:, 3:]
    return tuple(int(column.bincount().max()) / people.size for column in values.unbind(dim=1))
