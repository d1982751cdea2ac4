"""Randomness as integer hashing of (seed, split, index, draw): the same bits on every device, in any batch, in any order.

All arithmetic is on 64-bit integers, which wrap alike everywhere; logarithms, which differ in the last bit between devices, come
from a table that is computed in decimal arithmetic.
"""

from decimal import Context, Decimal
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.common.keys import stable_key

VERSION = 2
"""Raised whenever a change here draws other examples; part of the identity of every cell."""

MOST_IDS = 1 << 30
"""Of a vocabulary: draws have 32 bits."""


def _mix(x: Tensor) -> Tensor:
    """64 bits each of which depends on every bit of x (the finaliser of SplitMix64, but that shifts keep the sign: x and -1 - x are one)."""
    x = _half_mixed(x)
    return x ^ (x >> 31)


def _half_mixed(x: Tensor) -> Tensor:
    """As `_mix` without its last step, which the upper half does not need."""
    x = (x ^ (x >> 30)).mul_(-0x40A7B892E31B1A47)
    return x.bitwise_xor_(x >> 27).mul_(-0x6B2FB644ECCEEE15)


@cache
def constant(values: tuple[int, ...], device: torch.device) -> Tensor:
    """A table, which is copied to a device once: a captured draw could not wait for it."""
    return torch.tensor(values, device=device)


@cache
def _mixed_counters(count: int, device: torch.device) -> Tensor:
    """Of the numbers below `count`."""
    return _mix(torch.arange(count)).to(device)


def content(x: Tensor) -> Tensor:
    """Of every row of x, integers [B, M], a hash of 64 bits: int64 [B]. Rows that are alike have the same one, and others hardly ever do."""
    return _mix(x.to(torch.int64) + _mixed_counters(x.shape[1], x.device)).sum(dim=1)


class Stream(NamedTuple):
    """One random stream per example. key: int64 [B]."""

    key: Tensor

    @classmethod
    def of(cls, index: Tensor, *, seed: int | Tensor, split: str) -> "Stream":
        """The stream of example `index` [B] in `split` of `seed`."""
        seed = seed if isinstance(seed, Tensor) else torch.full((), seed, dtype=torch.int64, device=index.device)
        root = _mix(seed + stable_key("split", split))
        return cls(_mix(_mix(index.to(torch.int64)) + root))

    def child(self, draw: str) -> "Stream":
        """An independent stream for the draw of that name."""
        return Stream(_mix(self.key + stable_key("draw", draw)))

    def bits(self, counter: int | Tensor) -> Tensor:
        """Uniform integers in [0, 2^32), one for each counter [M] or [B, M] -> [B, M]; or for so many, counted from 0."""
        mixed = _mixed_counters(counter, self.key.device) if isinstance(counter, int) else _mix(counter)
        return (_half_mixed(self.key[:, None] + mixed) >> 32).bitwise_and_(0xFFFFFFFF)

    def integers(self, count: int, *, below: int | Tensor) -> Tensor:
        """[B, count] uniform in [0, below), below one number or [B or 1, count or 1]; the bias is at most below / 2^32."""
        return _scale(self.bits(count), below)

    def integers_at(self, counter: Tensor, *, below: int | Tensor) -> Tensor:
        """As `integers`, one for each counter [M] or [B, M]: the same wherever a counter comes back."""
        return _scale(self.bits(counter), below)

    def happens(self, count: int, *, share: float) -> Tensor:
        """[B, count] booleans, true in that share of cases, to 2^-32."""
        return self.bits(count) < round(share * 2**32)

    def normals(self, count: int) -> Tensor:
        """[B, count] from N(0, 1), float32: the same on every device but for rounding."""
        odd = 2 * self.bits(count) + 1
        return (torch.erfinv(odd.double() / 2**32 - 1) * 2**0.5).float()

    def shuffle(self, count: int) -> Tensor:
        """[B, count] the numbers below `count` in random order."""
        return self.permutation(count)(torch.arange(count, device=self.key.device))

    def exponentials(self, count: int) -> Tensor:
        """[B, count] of -log2(U), U uniform in (0, 1), in units of 2^-26."""
        odd = 2 * self.bits(count) + 1  # U = odd / 2^33
        parts = odd.double().view(torch.int64)  # exact: odd < 2^33, so that odd = 2^exponent (1 + fraction / 2^32)
        cell, rest = (parts >> 40) & 0xFFF, (parts >> 20) & 0xFFFFF  # of the fraction
        low, step = constant(_log2_table(), odd.device), constant(_log2_steps(), odd.device)
        log2_fraction = low[cell] + (step[cell] * rest >> 20)
        return ((33 + 1023 - (parts >> 52)) << _FRACTION_BITS) - log2_fraction

    def permutation(self, size: int) -> "Permutation":
        """A keyed permutation of 0 ... size-1."""
        return Permutation(self, size)

    def weighted_order(self, inverse_weights: Tensor) -> Tensor:
        """[B, S] the order in which successive draws without replacement take S items; `inverse_weights` [S] as from `inverse_powers`.

        An item's exponential waiting time over its weight is the time of its draw, so sorting the times is drawing one by one.
        """
        waiting = self.exponentials(inverse_weights.shape[0]) * inverse_weights
        return waiting.sort(dim=1, stable=True).indices


class Permutation(NamedTuple):
    """A permutation of 0 ... size-1, at most `MOST_IDS` of them, evaluated where it is needed; only of a few it is listed, by sorting.

    A Feistel network over pairs (left, right) in Z_a x Z_b, with a * b just at or above `size`. What it sends to one of the few points
    beyond `size` goes on to where these are sent.
    """

    stream: Stream
    size: int

    def __call__(self, x: Tensor) -> Tensor:
        """x [M] or [B, M], integers in [0, size) -> [B, M], where they are sent."""
        if self.size <= _FEW:
            listed = self.stream.bits(self.size).sort(dim=1, stable=True).indices
            return listed.gather(1, x.expand(len(listed), -1))
        keys = self.stream.bits(2 * _TURNS).to(torch.int32)  # half as wide is twice as fast
        rows, columns = _sides(self.size)
        beyond = rows * columns - self.size
        if not beyond:
            return _network(x, rows, columns, keys).to(torch.int64)
        points = torch.arange(self.size, rows * columns, device=x.device).expand(*x.shape[:-1], -1)
        y = _network(torch.cat([x, points], dim=-1), rows, columns, keys).to(torch.int64)
        y, ends = y[:, :-beyond], y[:, -beyond:]
        for _ in range(beyond.bit_length()):  # each time twice as far
            ends = self._onward(ends, ends)
        return self._onward(y, ends)

    def _onward(self, y: Tensor, ends: Tensor) -> Tensor:
        """y, but where it lies beyond `size` what the table `ends` says of it."""
        return torch.where(y < self.size, y, ends.gather(1, (y - self.size).clamp_(min=0)))


def inverse(order: Tensor) -> Tensor:
    """Of permutations [B, S]: where each number stands."""
    return torch.empty_like(order).scatter_(1, order, torch.arange(order.shape[1], device=order.device).expand_as(order))


def _network(x: Tensor, rows: int, columns: int, keys: Tensor) -> Tensor:
    x = x.to(torch.int32)
    left, right = x // columns, x % columns
    for turn in range(0, keys.shape[1], 2):
        left = left + _offset(right, keys[:, turn, None], rows)
        left += (left >> 31).bitwise_and_(rows)
        right = right + _offset(left, keys[:, turn + 1, None], columns)
        right += (right >> 31).bitwise_and_(columns)
    return left.mul_(columns).add_(right)


def _offset(x: Tensor, key: Tensor, size: int) -> Tensor:
    """From -size to -1, by 16 bits that depend on every bit of x and key; int32. To add it and then `size` where the sum is negative goes round
    a circle of that size: comparisons and remainders would take longer."""
    x = torch.add(key, x, alpha=-0x61C8864F)
    x = x.bitwise_xor_(x >> 16).mul_(-0x7A143595).bitwise_right_shift_(16)
    return x.bitwise_or_(-0x10000).mul_(size).bitwise_right_shift_(16)


_TURNS, _FEW = 4, 64
_FRACTION_BITS = 26
_DECIMAL = Context(prec=30)


def _scale(bits: Tensor, below: int | Tensor) -> Tensor:
    return (bits * below).bitwise_right_shift_(32)


@cache
def _sides(size: int) -> tuple[int, int]:
    """Near-square sides of a rectangle with at least `size` points and as few more as possible."""
    root = max(2, int(size**0.5))
    return min(((a, -(-size // a)) for a in range(root, max(1, root // 2), -1)), key=lambda sides: sides[0] * sides[1])


@cache
def _log2_table() -> tuple[int, ...]:
    """log2(1 + i / 4096) in units of 2^-26, i = 0 ... 4096."""
    ln2 = Decimal(2).ln(_DECIMAL)
    unit = Decimal(1 << _FRACTION_BITS)
    return tuple(int((_DECIMAL.divide((1 + Decimal(i) / 4096).ln(_DECIMAL), ln2) * unit).to_integral_value()) for i in range(4097))


@cache
def _log2_steps() -> tuple[int, ...]:
    table = _log2_table()
    return tuple(after - before for before, after in pairwise(table))


@cache
def inverse_powers(count: int, exponent: float) -> tuple[int, ...]:
    """max_j w_j / w_i for w_i = i^exponent, i = 1 ... count, in units of 2^-14: integers, computed alike on every machine."""
    power = Decimal(repr(exponent))
    weights = [(Decimal(i).ln(_DECIMAL) * power).exp(_DECIMAL) for i in range(1, count + 1)]
    largest = max(weights)
    return tuple(int((_DECIMAL.divide(largest, w) * (1 << 14)).to_integral_value()) for w in weights)
