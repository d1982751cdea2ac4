"""Rotary positions on a GPU in one launch; backward turns the other way.

Rows [N, W] are taken a tile at a time, the pairs of a row padded to a power of two. They may lie apart, as q
and k do in the result of one product.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.operators import operator, vmap_rule


@triton.jit
def _turn(
    x, cos, sin, y, rows, period, stride, W, HALF, BACK: tl.constexpr, TILE: tl.constexpr, BP: tl.constexpr
):
    """Turn x [rows, W], rows `stride` apart, to y [rows, W]. Grid (tiles).

    cos and sin [period, HALF] hold for row mod period. BACK: by the negative angle.
    """
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)[:, None]
    pair = tl.arange(0, BP)[None, :]
    mask = (row < rows) & (2 * pair < W)
    column, angle = pair // HALF * 2 * HALF + pair % HALF, row % period * HALF + pair % HALF
    first = tl.load(x + row * stride + column, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x + row * stride + column + HALF, mask=mask, other=0.0).to(tl.float32)
    c, s = tl.load(cos + angle, mask=mask, other=0.0), tl.load(sin + angle, mask=mask, other=0.0)
    if BACK:
        s = -s
    tl.store(y + row * W + column, (first * c - second * s).to(y.dtype.element_ty), mask=mask)
    tl.store(y + row * W + column + HALF, (first * s + second * c).to(y.dtype.element_ty), mask=mask)


def launch(width: int) -> dict[str, int]:
    """Return the parameters of a launch: tiles of 1024 pairs and four warps, wider if a row is."""
    padded = 1 << (width // 2 - 1).bit_length()
    return {"TILE": max(1, 1024 // padded), "BP": padded, "num_warps": max(4, min(16, padded // 512))}


@triton.jit
def turns(pair, position, exponent):
    """Return cosine and sine of the angles position * 2^(pair exponent)."""
    # as exact as powers of float32, which the angles of long sequences need
    frequency = tl.exp2(pair.to(tl.float64) * exponent).to(tl.float32)
    angle = position.to(tl.float32) * frequency
    return tl.cos(angle), tl.sin(angle)


def exponent_of(base: float, half: int) -> float:
    """Return the exponent for `turns`, so that the frequencies of `half` pairs are powers of 1 / base."""
    return -math.log2(base) / max(half, 1)


@triton.jit(do_not_specialize=["by_row"])
def _turn_one(
    x, positions, y, stride_b, stride_h, by_row, exponent,
    H: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, BP: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """Turn one token x [B, 1, H, D] to y, pairs i and i + HALF by position * 2^(i exponent). Grid (B H).

    positions [B or 1, 1], `by_row` apart. Pairs are padded to BP. The other channels, padded to BR, are
    copied.
    """
    bh = tl.program_id(0).to(tl.int64)
    at, to = x + bh // H * stride_b + bh % H * stride_h, y + bh * D
    pair, mask = tl.arange(0, BP), tl.arange(0, BP) < HALF
    c, s = turns(pair, tl.load(positions + bh // H * by_row), exponent)
    first = tl.load(at + pair, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(at + HALF + pair, mask=mask, other=0.0).to(tl.float32)
    tl.store(to + pair, (first * c - second * s).to(y.dtype.element_ty), mask=mask)
    tl.store(to + HALF + pair, (first * s + second * c).to(y.dtype.element_ty), mask=mask)
    if 2 * HALF < D:
        rest = 2 * HALF + tl.arange(0, BR)
        tl.store(to + rest, tl.load(at + rest, mask=rest < D, other=0.0), mask=rest < D)


def rotate_one(x: Tensor, positions: Tensor, dims: int, base: float) -> Tensor:
    """Return one token x [B, 1, H, D] turned; arguments are those of `rotate_at`."""
    x = x if x.stride(3) == 1 else x.contiguous()
    batch, _, heads, width = x.shape
    y, half = x.new_empty(x.shape), dims // 2
    rest = 1 << max(width - dims - 1, 0).bit_length()
    by_row = positions.stride(0) if len(positions) > 1 else 0
    _turn_one[(batch * heads,)](
        x, positions, y, x.stride(0), x.stride(2), by_row, exponent_of(base, half),
        H=heads, D=width, HALF=half, BP=1 << (half - 1).bit_length(), BR=rest, num_warps=1,
    )  # fmt: skip
    return y


@operator("rotate")
def turn(x: Tensor, cos: Tensor, sin: Tensor, back: bool) -> Tensor:
    """Return x [N, W], heads side by side, turned by cos and sin [P, D/2] in float32, with P dividing N."""
    x = x if x.stride(1) == 1 else x.contiguous()
    shape, y = launch(x.shape[1]), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (-(-len(x) // shape["TILE"]),)
    _turn[grid](
        x, cos.contiguous(), sin.contiguous(), y, len(x), len(cos),
        x.stride(0), x.shape[1], cos.shape[1], BACK=back, **shape,
    )  # fmt: skip
    return y


@turn.register_fake
def _(x: Tensor, cos: Tensor, sin: Tensor, back: bool) -> Tensor:
    return x.new_empty(x.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cos, sin, ctx.back = inputs
    ctx.save_for_backward(cos, sin)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    return turn(dy, *ctx.saved_tensors, not ctx.back), None, None, None


def _stack(
    info: Any, in_dims: tuple[int | None, ...], x: Tensor, cos: Tensor, sin: Tensor, back: bool
) -> tuple[Tensor, int]:
    """Stack replicas as more rows; angles of their own are written out for every row of theirs."""
    rows = x.shape[0 if in_dims[0] is None else 1 - min(in_dims[0], 1)]

    def for_each_row(table: Tensor, dim: int | None) -> Tensor:
        moved = table.expand(info.batch_size, *table.shape) if dim is None else table.movedim(dim, 0)
        return moved.repeat(1, rows // moved.shape[1], 1)

    if in_dims[1] is not None or in_dims[2] is not None:
        cos, sin = for_each_row(cos, in_dims[1]), for_each_row(sin, in_dims[2])
        found: tuple[Tensor, int] = vmap_rule(turn, info, (in_dims[0], 0, 0, None), x, cos, sin, back)
        return found
    stacked = x.expand(info.batch_size, *x.shape) if in_dims[0] is None else x.movedim(in_dims[0], 0)
    return turn(stacked.flatten(0, 1), cos, sin, back).unflatten(0, (info.batch_size, -1)), 0


turn.register_autograd(_differentiate, setup_context=_save)
turn.register_vmap(_stack)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x turned; arguments are those of the door."""
    y: Tensor = turn(
        x.reshape(-1, x.shape[2] * x.shape[3]), cos.flatten(0, 1).float(), sin.flatten(0, 1).float(), False
    )
    return y.view(x.shape)
