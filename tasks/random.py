"""Random numbers as integer hashes of (seed, split, index, draw).

They have the same bits on every device, in any batch and any order. All arithmetic is on 64-bit integers,
which wrap alike everywhere; logarithms, which differ between devices in the last bit, come from a table that
is computed in decimal arithmetic.
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
"""Raise it with every change here that draws other examples; it is part of the identity of every cell."""

MOST_IDS = 1 << 30
"""Largest vocabulary; draws have 32 bits."""


@cache
def constant(values: tuple[int, ...], device: torch.device) -> Tensor:
    """Return a table that is copied to a device once; a captured CUDA graph could not wait for the copy."""
    return torch.tensor(values, device=device)


def content(x: Tensor) -> Tensor:
    """Return a 64-bit hash [B] of every row of integers x [B, M]; different rows hardly ever share one."""
    return mixed(x.to(torch.int64) + mixed(torch.arange(x.shape[1], device=x.device))).sum(dim=1)


class Stream(NamedTuple):
    """One random stream per example. key: int64 [B]."""

    key: Tensor

    @classmethod
    def of(cls, index: Tensor, *, seed: int | Tensor, split: str) -> "Stream":
        """Return the streams of examples `index` [B] in a split of a seed."""
        seed = (
            seed if isinstance(seed, Tensor) else torch.full((), seed, dtype=torch.int64, device=index.device)
        )
        root = mixed(seed, stable_key("split", split))
        return cls(mixed(mixed(index.to(torch.int64)) + root))

    def child(self, draw: str) -> "Stream":
        """Return an independent stream for the draw of that name."""
        return Stream(mixed(self.key, stable_key("draw", draw)))

    def bits(self, counter: int | Tensor) -> Tensor:
        """Return uniform integers in [0, 2^32), one for each counter.

        Args:
            counter: [M] or [B, M]; or a number of counters, counted from 0.
        """
        return bits(self.key, counter)

    def integers(self, count: int, *, below: int | Tensor) -> Tensor:
        """Return uniform integers [B, count] in [0, below); the bias is at most below / 2^32.

        Args:
            count: numbers per example.
            below: one bound, or bounds [B or 1, count or 1].
        """
        return _scale_below(self.bits(count), below)

    def integers_at(self, counter: Tensor, *, below: int | Tensor) -> Tensor:
        """Return `integers` at given counters [M] or [B, M]; equal counters give equal numbers."""
        return _scale_below(self.bits(counter), below)

    def happens(self, count: int, *, share: float) -> Tensor:
        """Return booleans [B, count], true in that share of cases, up to 2^-32."""
        return self.bits(count) < round(share * 2**32)

    def normals(self, count: int) -> Tensor:
        """Return float32 draws [B, count] from N(0, 1), the same on every device up to rounding."""
        odd = 2 * self.bits(count) + 1
        return (torch.erfinv(odd.double() / 2**32 - 1) * 2**0.5).float()

    def shuffle(self, count: int) -> Tensor:
        """Return the numbers below `count` in random order, [B, count]."""
        return self.permutation(count)(torch.arange(count, device=self.key.device))

    def exponentials(self, count: int) -> Tensor:
        """Return draws [B, count] of -log2(U), U uniform in (0, 1), in units of 2^-26."""
        odd = 2 * self.bits(count) + 1  # U = odd / 2^33
        # exact: odd < 2^33, so that odd = 2^exponent (1 + fraction / 2^32)
        parts = odd.double().view(torch.int64)
        cell, rest = (parts >> 40) & 0xFFF, (parts >> 20) & 0xFFFFF  # of the fraction
        low, step = constant(_log2_table(), odd.device), constant(_log2_steps(), odd.device)
        log2_fraction = low[cell] + (step[cell] * rest >> 20)
        return ((33 + 1023 - (parts >> 52)) << _FRACTION_BITS) - log2_fraction

    def permutation(self, size: int) -> "Permutation":
        """Return a keyed permutation of 0 ... size-1."""
        return Permutation(self, size)

    def weighted_order(self, inverse_weights: Tensor) -> Tensor:
        """Return the order [B, S] in which successive weighted draws without replacement take S items.

        An item's exponential waiting time divided by its weight is the time of its draw, so sorting the times
        draws one item after another.

        Args:
            inverse_weights: [S], as from `inverse_powers`.
        """
        waiting = self.exponentials(inverse_weights.shape[0]) * inverse_weights
        return waiting.sort(dim=1, stable=True).indices


class Permutation(NamedTuple):
    """A permutation of 0 ... size-1, for sizes up to `MOST_IDS`, evaluated where it is needed.

    Small ones are listed in full, by sorting.
    """

    stream: Stream
    size: int

    def __call__(self, x: Tensor) -> Tensor:
        """Return the images [B, M] of x [M] or [B, M]."""
        if self.size <= _FEW:
            listed = self.stream.bits(self.size).sort(dim=1, stable=True).indices
            return listed.gather(1, x.expand(len(listed), -1))
        return permuted(self.stream.key, x, size=self.size)


def inverse(order: Tensor) -> Tensor:
    """Return the inverses of permutations [B, S]."""
    return torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )


_FEW = 64
_FRACTION_BITS = 26
LARGEST_WEIGHT = (2**63 - 1) // (33 << _FRACTION_BITS)
"""Largest factor of an `exponentials` draw, at most 33 in units of 2^-26, that fits into 64 bits."""
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
    """Return max_j w_j / w_i for w_i = i^exponent, i = 1 ... count, in units of 2^-14.

    The integers are computed alike on every machine.
    """
    power = Decimal(repr(exponent))
    weights = [(Decimal(i).ln(_DECIMAL) * power).exp(_DECIMAL) for i in range(1, count + 1)]
    largest = max(weights)
    if largest / min(weights) * (1 << 14) > LARGEST_WEIGHT:
        raise ValueError(
            f"{count:,} weights of exponent {exponent} differ by more than waiting times of 64 bits can tell"
            " apart"
        )
    return tuple(int((_DECIMAL.divide(largest, w) * (1 << 14)).to_integral_value()) for w in weights)
