"""Hashing on a GPU: a launch each, every number written once.

The places [B, M] of a result are taken 1024 at a time, row after row, whatever M is: Triton compiles one
kernel for all shapes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.hashing import eager
from linbench.kernels.operators import operator

_MIXING = dict(zip(("FIRST", "SECOND"), eager.MULTIPLIERS, strict=True))
_TURNING = {"STEP": eager.STEP, "MULTIPLIER": eager.MULTIPLIER, "TURNS": eager.TURNS}
_BLOCK = 1024
"""Numbers of a program, eight for each of its 128 threads: chosen, not measured."""

_NUMBERS = ["count", "plus", "columns", "stride", "row_stride", "column_stride", "size", "width", "height"]
"""Parameters for which Triton must not compile value by value."""


@triton.jit
def _half_mix(x, FIRST: tl.constexpr, SECOND: tl.constexpr):
    x = (x ^ (x >> 30)) * FIRST
    return (x ^ (x >> 27)) * SECOND


@triton.jit
def _mix(x, FIRST: tl.constexpr, SECOND: tl.constexpr):
    x = _half_mix(x, FIRST, SECOND)
    return x ^ (x >> 31)


@triton.jit
def _places(count, columns, BLOCK: tl.constexpr):
    """Return this program's places, their rows, columns and mask, each [BLOCK].

    Only the first place needs 64 bits to find its row.
    """
    first = tl.program_id(0).to(tl.int64) * BLOCK
    row = first // columns
    within = (first - row * columns).to(tl.int32) + tl.arange(0, BLOCK)
    place = first + tl.arange(0, BLOCK)
    return place, row + within // columns, within % columns, place < count


@triton.jit(do_not_specialize=_NUMBERS)
def _mixed(x, y, count, plus, BLOCK: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """Mix x [count] to y [count]."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = place < count
    tl.store(y + place, _mix(tl.load(x + place, mask=mask, other=0) + plus, FIRST, SECOND), mask=mask)


@triton.jit(do_not_specialize=_NUMBERS)
def _bits(
    key, counter, y, count, columns, stride, row_stride, column_stride,
    COUNTED: tl.constexpr, BLOCK: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
):  # fmt: skip
    """Compute y [rows, columns] of key [rows] and counter [rows, columns], `count` places in all.

    COUNTED: counters are the columns.
    """
    place, row, column, mask = _places(count, columns, BLOCK)
    number = column.to(tl.int64)
    if not COUNTED:
        number = tl.load(counter + row * row_stride + number * column_stride, mask=mask, other=0)
    x = tl.load(key + row * stride, mask=mask, other=0) + _mix(number, FIRST, SECOND)
    tl.store(y + place, (_half_mix(x, FIRST, SECOND) >> 32) & 0xFFFFFFFF, mask=mask)


@triton.jit
def _turned(
    x,
    other,
    key,
    turn,
    size,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    STEP: tl.constexpr,
    MULTIPLIER: tl.constexpr,
):
    """Return x [BLOCK] moved round a circle of `size` by a hash of the other half, the key and the turn."""
    own = _half_mix(key + _mix(tl.zeros_like(key) + turn, FIRST, SECOND), FIRST, SECOND) >> 32
    hashed = own.to(tl.int32) + other * STEP
    hashed = (hashed ^ (hashed >> 16)) * MULTIPLIER >> 16
    x += (hashed | -0x10000) * size >> 16
    return tl.where(x < 0, x + size, x)


@triton.jit
def _network(
    x, key, height, width, FIRST: tl.constexpr, SECOND: tl.constexpr,
    STEP: tl.constexpr, MULTIPLIER: tl.constexpr, TURNS: tl.constexpr
):  # fmt: skip
    left, right = x // width, x % width
    for turn in range(0, TURNS, 2):
        left = _turned(left, right, key, turn, height, FIRST, SECOND, STEP, MULTIPLIER)
        right = _turned(right, left, key, turn + 1, width, FIRST, SECOND, STEP, MULTIPLIER)
    return left * width + right


@triton.jit(do_not_specialize=_NUMBERS)
def _permuted(
    key, x, y, count, columns, row_stride, column_stride, size, height, width,
    BLOCK: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
    STEP: tl.constexpr, MULTIPLIER: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Permute x to y [rows, columns] by key [rows], `count` places in all."""
    place, row, column, mask = _places(count, columns, BLOCK)
    own = tl.load(key + row, mask=mask, other=0)
    at = tl.load(x + row * row_stride + column.to(tl.int64) * column_stride, mask=mask, other=0).to(tl.int32)
    onward = mask
    # few go twice, and they come back: the way of a point in a permutation is a circle
    while tl.max(onward.to(tl.int32), axis=0) > 0:
        at = tl.where(onward, _network(at, own, height, width, FIRST, SECOND, STEP, MULTIPLIER, TURNS), at)
        onward = at >= size
    tl.store(y + place, at.to(tl.int64), mask=mask)


@operator("hashing_mixed", differentiable=False)
def mixed(x: Tensor, plus: int) -> Tensor:
    """Return 64 mixed bits; the argument is that of the door."""
    x = x.contiguous()
    y = torch.empty_like(x)
    if y.numel():
        _mixed[_grid(y)](x, y, y.numel(), plus, BLOCK=_BLOCK, **_MIXING)
    return y


@operator("hashing_bits", differentiable=False)
def bits(key: Tensor, counter: Tensor | None, columns: int) -> Tensor:
    """Return 32 bits for each counter of each key.

    counter is [columns] or [rows, columns], or None for 0 ... columns - 1.
    """
    y = _bits_of(key, counter, columns)
    if y.numel():
        key, counters = key.expand(len(y)), (y if counter is None else counter).expand_as(y)
        _bits[_grid(y)](
            key, counters, y, y.numel(), columns, *key.stride(), *counters.stride(),
            COUNTED=counter is None, BLOCK=_BLOCK, **_MIXING,
        )  # fmt: skip
    return y


@operator("hashing_permuted", differentiable=False)
def permuted(key: Tensor, x: Tensor, size: int) -> Tensor:
    """Return where a permutation sends x; arguments are those of the door."""
    y = _images(key, x, size)
    if y.numel():
        key, x = key.contiguous(), x.expand_as(y)
        _permuted[_grid(y)](
            key, x, y, y.numel(), y.shape[1], *x.stride(), size,
            *eager.sides(size), BLOCK=_BLOCK, **_MIXING, **_TURNING,
        )  # fmt: skip
    return y


def _grid(y: Tensor) -> tuple[int]:
    return (triton.cdiv(y.numel(), _BLOCK),)


def _bits_of(key: Tensor, counter: Tensor | None, columns: int) -> Tensor:
    rows = len(key) if counter is None or counter.dim() == 1 else max(len(key), len(counter))
    return key.new_empty(rows, columns)


def _images(key: Tensor, x: Tensor, size: int) -> Tensor:
    return key.new_empty(len(key), x.shape[-1])


mixed.register_fake(lambda x, plus: x.new_empty(x.shape))
bits.register_fake(_bits_of)
permuted.register_fake(_images)
