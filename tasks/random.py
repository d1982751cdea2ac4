"""Randomness as integer hashing of (seed, split, index, draw): the same bits on every device, in any batch, in any order.

All arithmetic is on 64-bit integers, which wrap alike everywhere; logarithms, which differ in the last bit between devices, come
from a table that is computed in decimal arithmetic.
"""

from decimal import Context, Decimal
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.common.keys import stable_key


def _mix(x: Tensor) -> Tensor:
    """A bijection of 64-bit integers in which every input bit reaches every output bit (the finaliser of SplitMix64)."""
    x = (x ^ _shift(x, 30)) * -0x40A7B892E31B1A47
    x = (x ^ _shift(x, 27)) * -0x6B2FB644ECCEEE15
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


@cache
def constant(values: tuple[int, ...], device: torch.device) -> Tensor:
    """A table, which is copied to a device once: a captured draw could not wait for it."""
    return torch.tensor(values, device=device)


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

    def bits(self, counter: Tensor) -> Tensor:
        """Uniform integers in [0, 2^32), one per counter: counter [M] or [B, M] -> [B, M]."""
        return _shift(_mix(self.key[:, None] + _mix(counter)), 32)

    def integers(self, count: int, *, below: int | Tensor) -> Tensor:
        """[B, count] uniform in [0, below), below one number or [B or 1, count or 1]; the bias is at most below / 2^32."""
        return self.integers_at(torch.arange(count, device=self.key.device), below=below)

    def integers_at(self, counter: Tensor, *, below: int | Tensor) -> Tensor:
        """As `integers`, one for each counter [M] or [B, M]: the same wherever a counter comes back."""
        return _scale(self.bits(counter), below)

    def happens(self, count: int, *, share: float) -> Tensor:
        """[B, count] booleans, true in that share of cases, to 2^-32."""
        return self.bits(torch.arange(count, device=self.key.device)) < round(share * 2**32)

    def normals(self, count: int) -> Tensor:
        """[B, count] from N(0, 1), float32: the same on every device but for rounding."""
        odd = 2 * self.bits(torch.arange(count, device=self.key.device)) + 1
        return (torch.erfinv(odd.double() / 2**32 - 1) * 2**0.5).float()

    def shuffle(self, count: int) -> Tensor:
        """[B, count] the numbers below `count` in random order."""
        return self.permutation(count)(torch.arange(count, device=self.key.device))

    def exponentials(self, count: int) -> Tensor:
        """[B, count] of -log2(U), U uniform in (0, 1), in units of 2^-26."""
        odd = 2 * self.bits(torch.arange(count, device=self.key.device)) + 1  # U = odd / 2^33
        parts = odd.double().view(torch.int64)  # exact: odd < 2^33, so that odd = 2^exponent (1 + fraction / 2^32)
        exponent, fraction = (parts >> 52) - 1023, (parts >> 20) & 0xFFFFFFFF
        table = constant(_log2_table(), odd.device)
        cell, rest = fraction >> 20, fraction & ((1 << 20) - 1)
        low = table[cell]
        log2_rest = low + (((table[cell + 1] - low) * rest) >> 20)  # of 1 + fraction / 2^32
        return ((33 - exponent) << _FRACTION_BITS) - log2_rest

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
    """A permutation of 0 ... size-1, at most 2^30 of them, evaluated where it is needed; only of a few it is listed, by sorting.

    A Feistel network over pairs (left, right) in Z_a x Z_b, with a * b just at or above `size`. The few points beyond `size` are
    stepped over by applying the network again: as many times as there are such points always suffices, so no loop depends on data.
    """

    stream: Stream
    size: int

    def __call__(self, x: Tensor) -> Tensor:
        """x [M] or [B, M], integers in [0, size) -> [B, M], where they are sent."""
        if self.size <= _FEW:
            listed = self.stream.bits(torch.arange(self.size, device=x.device)).sort(dim=1, stable=True).indices
            return listed.gather(1, x.expand(len(listed), -1))
        keys = self.stream.bits(torch.arange(2 * _TURNS, device=x.device)).to(torch.int32)  # half as wide is twice as fast
        rows, columns = _sides(self.size)
        y = self._network(x.to(torch.int32), rows, columns, keys)
        for _ in range(rows * columns - self.size):
            y = torch.where(y < self.size, y, self._network(y, rows, columns, keys))
        return y.to(torch.int64)

    def _network(self, x: Tensor, rows: int, columns: int, keys: Tensor) -> Tensor:
        left, right = x // columns, x % columns
        for turn in range(0, keys.shape[1], 2):
            left = _moved(left, _mix32(right, keys[:, turn, None]), rows)
            right = _moved(right, _mix32(left, keys[:, turn + 1, None]), columns)
        return left * columns + right


def _mix32(x: Tensor, key: Tensor) -> Tensor:
    """16 bits that depend on every bit of x and key, int32 (the finaliser of MurmurHash3, but that shifts keep the sign)."""
    x = x * -0x61C8864F + key
    x = (x ^ (x >> 16)) * -0x7A143595
    x = (x ^ (x >> 13)) * -0x3D4D51CB
    return (x >> 16) & 0xFFFF


def _moved(x: Tensor, bits: Tensor, size: int) -> Tensor:
    """x + bits / 2^16 * size, round and round a circle of that size: comparisons and remainders would take longer."""
    x = x + (bits * size >> 16) - size
    return x + ((x >> 31) & size)


_TURNS, _FEW = 4, 64
_FRACTION_BITS = 26
_DECIMAL = Context(prec=30)


def _scale(bits: Tensor, below: int | Tensor) -> Tensor:
    return (bits * below) >> 32


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
def inverse_powers(count: int, exponent: float) -> tuple[int, ...]:
    """max_j w_j / w_i for w_i = i^exponent, i = 1 ... count, in units of 2^-14: integers, computed alike on every machine."""
    power = Decimal(repr(exponent))
    weights = [(Decimal(i).ln(_DECIMAL) * power).exp(_DECIMAL) for i in range(1, count + 1)]
    largest = max(weights)
    return tuple(int((_DECIMAL.divide(largest, w) * (1 << 14)).to_integral_value()) for w in weights)
