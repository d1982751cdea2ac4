"""Hashing in torch, in as few passes over memory as there can be."""

from functools import cache

import torch
from torch import Tensor

MULTIPLIERS = -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
"""Multipliers of the mixing in 64 bits, those of SplitMix64."""

STEP, MULTIPLIER = -0x61C8864F, -0x7A143595
"""Constants of the mixing in 32 bits."""

TURNS = 8
"""Turns of the network, four for either half of a pair.

Small rectangles need them for uniform images of pairs.
"""


def mixed(x: Tensor) -> Tensor:
    """Return 64 mixed bits; the argument is that of the door."""
    x = _half_mixed(x)
    return x ^ (x >> 31)


def bits(key: Tensor, counter: int | Tensor) -> Tensor:
    """Return 32 bits for each counter of each key; arguments are those of the door."""
    counters = _mixed_numbers(counter, key.device) if isinstance(counter, int) else mixed(counter)
    return (_half_mixed(key[:, None] + counters) >> 32).bitwise_and_(0xFFFFFFFF)


def permuted(key: Tensor, x: Tensor, size: int) -> Tensor:
    """Return where a permutation sends x; arguments are those of the door."""
    keys = bits(key, TURNS).to(torch.int32)  # half as wide is twice as fast
    rows, columns = sides(size)
    beyond = rows * columns - size
    if not beyond:
        return _network(x, rows, columns, keys).to(torch.int64)
    points = torch.arange(size, rows * columns, device=x.device).expand(*x.shape[:-1], -1)
    y = _network(torch.cat([x, points], dim=-1), rows, columns, keys).to(torch.int64)
    y, ends = y[:, :-beyond], y[:, -beyond:]
    for _ in range(beyond.bit_length()):  # each time twice as far
        ends = _onward(ends, ends, size)
    return _onward(y, ends, size)


@cache
def sides(size: int) -> tuple[int, int]:
    """Return near-square sides of a rectangle with at least `size` points and as few more as possible."""
    root = max(2, int(size**0.5))
    return min(
        ((a, -(-size // a)) for a in range(root, max(1, root // 2), -1)),
        key=lambda sides: sides[0] * sides[1],
    )


def _half_mixed(x: Tensor) -> Tensor:
    """Mix without the last step of `mixed`, which the upper half does not need."""
    x = (x ^ (x >> 30)).mul_(MULTIPLIERS[0])
    return x.bitwise_xor_(x >> 27).mul_(MULTIPLIERS[1])


@cache
def _mixed_numbers(count: int, device: torch.device) -> Tensor:
    """Return the mixed bits of 0 ... count - 1."""
    return mixed(torch.arange(count)).to(device)


def _onward(y: Tensor, ends: Tensor, size: int) -> Tensor:
    """Return y, replaced where it lies beyond `size` by its entry in the table `ends`."""
    return torch.where(y < size, y, ends.gather(1, (y - size).clamp_(min=0)))


def _network(x: Tensor, rows: int, columns: int, keys: Tensor) -> Tensor:
    x = x.to(torch.int32)
    left, right = x // columns, x % columns
    for turn in range(0, TURNS, 2):
        left = left + _offset(right, keys[:, turn, None], rows)
        left += (left >> 31).bitwise_and_(rows)
        right = right + _offset(left, keys[:, turn + 1, None], columns)
        right += (right >> 31).bitwise_and_(columns)
    return left.mul_(columns).add_(right)


def _offset(x: Tensor, key: Tensor, size: int) -> Tensor:
    """Return a number from -size to -1, by 16 bits that depend on every bit of x and key; int32.

    To add it, and then `size` where the sum is negative, goes round a circle of that size: comparisons and
    remainders would take longer.
    """
    x = torch.add(key, x, alpha=STEP)
    x = x.bitwise_xor_(x >> 16).mul_(MULTIPLIER).bitwise_right_shift_(16)
    return x.bitwise_or_(-0x10000).mul_(size).bitwise_right_shift_(16)
