"""Randomness as integer hashing of (seed, split, index, draw): the same bits on every device, in any batch,
in any order.

All arithmetic is on 64-bit integers, which wrap alike everywhere; logarithms, which differ in the last bit
between devices, come from a table that is computed in decimal arithmetic.
"""

from decimal import Context, Decimal
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.common.hashing import stable_key
from linbench.kernels.hashing import bits, mixed, permuted

VERSION = 2
"""Raised whenever a change here draws other examples; part of the identity of every cell."""

MOST_IDS = 1 << 30
"""Of a vocabulary: draws have 32 bits."""


@cache
def constant(values: tuple[int, ...], device: torch.device) -> Tensor:
    """A table, which is copied to a device once: a captured draw could not wait for it."""
    return torch.tensor(values, device=device)


def content(x: Tensor) -> Tensor:
    """Of every row of x, integers [B, M], a hash of 64 bits: int64 [B]. Rows that are alike have the same
    one, and others hardly ever do."""
    return mixed(x.to(torch.int64) + mixed(torch.arange(x.shape[1], device=x.device))).sum(dim=1)


class Stream(NamedTuple):
    """One random stream per example. key: int64 [B]."""

    key: Tensor

    @classmethod
    def of(cls, index: Tensor, *, seed: int | Tensor, split: str) -> "Stream":
        """The stream of example `index` [B] in `split` of `seed`."""
        seed = (
            seed if isinstance(seed, Tensor) else torch.full((), seed, dtype=torch.int64, device=index.device)
        )
        root = mixed(seed, stable_key("split", split))
        return cls(mixed(mixed(index.to(torch.int64)) + root))

    def child(self, draw: str) -> "Stream":
        """An independent stream for the draw of that name."""
        return Stream(mixed(self.key, stable_key("draw", draw)))

    def bits(self, counter: int | Tensor) -> Tensor:
        """Uniform integers in [0, 2^32), one for each counter [M] or [B, M] -> [B, M]; or for so many,
        counted from 0."""
        return bits(self.key, counter)

    def integers(self, count: int, *, below: int | Tensor) -> Tensor:
        """[B, count] uniform in [0, below), below one number or [B or 1, count or 1]; the bias is at most
        below / 2^32."""
        return _scale_below(self.bits(count), below)

    def integers_at(self, counter: Tensor, *, below: int | Tensor) -> Tensor:
        """As `integers`, one for each counter [M] or [B, M]: the same wherever a counter comes back."""
        return _scale_below(self.bits(counter), below)

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
        # exact: odd < 2^33, so that odd = 2^exponent (1 + fraction / 2^32)
        parts = odd.double().view(torch.int64)
        cell, rest = (parts >> 40) & 0xFFF, (parts >> 20) & 0xFFFFF  # of the fraction
        low, step = constant(_log2_table(), odd.device), constant(_log2_steps(), odd.device)
        log2_fraction = low[cell] + (step[cell] * rest >> 20)
        return ((33 + 1023 - (parts >> 52)) << _FRACTION_BITS) - log2_fraction

    def permutation(self, size: int) -> "Permutation":
        """A keyed permutation of 0 ... size-1."""
        return Permutation(self, size)

    def weighted_order(self, inverse_weights: Tensor) -> Tensor:
        """[B, S] the order in which successive draws without replacement take S items; `inverse_weights` [S]
        as from `inverse_powers`.

        An item's exponential waiting time over its weight is the time of its draw, so sorting the times is
        drawing one by one.
        """
        waiting = self.exponentials(inverse_weights.shape[0]) * inverse_weights
        return waiting.sort(dim=1, stable=True).indices


class Permutation(NamedTuple):
    """A permutation of 0 ... size-1, at most `MOST_IDS` of them, evaluated where it is needed; only of a few
    it is listed, by sorting."""

    stream: Stream
    size: int

    def __call__(self, x: Tensor) -> Tensor:
        """x [M] or [B, M], integers in [0, size) -> [B, M], where they are sent."""
        if self.size <= _FEW:
            listed = self.stream.bits(self.size).sort(dim=1, stable=True).indices
            return listed.gather(1, x.expand(len(listed), -1))
        return permuted(self.stream.key, x, size=self.size)


def inverse(order: Tensor) -> Tensor:
    """Of permutations [B, S]: where each number stands."""
    return torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )


_FEW = 64
_FRACTION_BITS = 26
LARGEST_WEIGHT = (2**63 - 1) // (33 << _FRACTION_BITS)
"""What an `exponentials` may be multiplied by in 64 bits: the largest of these is 33, in units of 2^-26."""
_DECIMAL = Context(prec=30)


def _scale_below(bits: Tensor, below: int | Tensor) -> Tensor:
    return (bits * below).bitwise_right_shift_(32)


@cache
def _log2_table() -> tuple[int, ...]:
    """log2(1 + i / 4096) in units of 2^-26, i = 0 ... 4096."""
    ln2 = Decimal(2).ln(_DECIMAL)
    unit = Decimal(1 << _FRACTION_BITS)
    return tuple(
        int((_DECIMAL.divide((1 + Decimal(i) / 4096).ln(_DECIMAL), ln2) * unit).to_integral_value())
        for i in range(4097)
    )


@cache
def _log2_steps() -> tuple[int, ...]:
    table = _log2_table()
    return tuple(after - before for before, after in pairwise(table))


@cache
def inverse_powers(count: int, exponent: float) -> tuple[int, ...]:
    """max_j w_j / w_i for w_i = i^exponent, i = 1 ... count, in units of 2^-14: integers, computed alike on
    every machine."""
    power = Decimal(repr(exponent))
    weights = [(Decimal(i).ln(_DECIMAL) * power).exp(_DECIMAL) for i in range(1, count + 1)]
    largest = max(weights)
    if largest / min(weights) * (1 << 14) > LARGEST_WEIGHT:
        raise ValueError(
            f"{count:,} weights of exponent {exponent} differ by more than waiting times of 64 bits can tell"
            " apart"
        )
    return tuple(int((_DECIMAL.divide(largest, w) * (1 << 14)).to_integral_value()) for w in weights)
