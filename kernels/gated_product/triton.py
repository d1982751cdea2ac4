"""Products number by number on a GPU: one launch forward, one backward, each number read and written once.

The gated product keeps only x for backward, and the gradients of both halves are written into one tensor. A
program takes BLOCK results that lie side by side, whatever rows they belong to, so that no lane is idle,
however wide a row is. The compiler knows the width: it divides by it cheaply, and loads as many numbers at
once as the width allows, 16 bytes where it is a multiple of eight.

Rows times numbers are taken in tiles of whole rows, since the gradient of a number is a sum over its row.
"""

from math import gcd
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.operators import Operator, fold_replicas, operator
from linbench.kernels.row_tiles import forward_launch

BLOCK = 1024
"""Results of a program, eight for each of its 128 threads, 16 bytes in bfloat16: chosen, not measured."""


@triton.jit
def _place(program, rows, H: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """Return where gates and values [BLOCK] lie in rows of WIDTH and results in y [rows, H], and their mask.

    Each place is that of a first row or number, in 64 bits, and offsets from it, in 32. STEP divides H and
    BLOCK: so many neighbours lie in one row, and the compiler, told so, loads them at once.
    """
    first = program.to(tl.int64) * BLOCK
    row, column = first // H, tl.multiple_of((first % H).to(tl.int32), STEP)
    lane = tl.arange(0, BLOCK)
    below = (column + lane) // H  # rows below the first
    return row * WIDTH, column + lane + below * (WIDTH - H), first, lane, row + below < rows


@triton.jit
def _forward(
    gates, values, y, rows, H: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr
):
    """Compute y [rows, H] of gates and values [rows, H], in rows of WIDTH. Grid (rows * H / BLOCK)."""
    row, at, first, lane, mask = _place(tl.program_id(0), rows, H, WIDTH, BLOCK, STEP)
    g = tl.load(gates + row + at, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(values + row + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + first + lane, (g * tl.sigmoid(g) * v).to(y.dtype.element_ty), mask=mask)


@triton.jit
def _backward(
    gates, values, dy, dgates, dvalues, rows,
    H: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of gates and values, which lie as these do. Grid as in `_forward`."""
    row, at, first, lane, mask = _place(tl.program_id(0), rows, H, WIDTH, BLOCK, STEP)
    g = tl.load(gates + row + at, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(values + row + at, mask=mask, other=0.0).to(tl.float32)
    do = tl.load(dy + first + lane, mask=mask, other=0.0).to(tl.float32)
    s = tl.sigmoid(g)
    tl.store(dgates + row + at, (do * v * s * (1 + g * (1 - s))).to(dgates.dtype.element_ty), mask=mask)
    tl.store(dvalues + row + at, (do * g * s).to(dvalues.dtype.element_ty), mask=mask)


def _launch(rows: int, width: int, apart: int) -> tuple[tuple[int], dict[str, int]]:
    """Return the grid and the parameters of a launch for results [rows, width].

    Args:
        apart: numbers from a row of gates to the next, and of values.
    """
    return (-(-rows * width // BLOCK),), {
        "H": width, "WIDTH": apart, "BLOCK": BLOCK, "STEP": gcd(width, BLOCK), "num_warps": 4,
    }  # fmt: skip


@operator("silu_product")
def forward(x: Tensor) -> Tensor:
    """Return silu(gate) * value [N, H] of x [N, 2 H]."""
    x, (rows, width) = x.contiguous(), (len(x), x.shape[1] // 2)
    grid, shape = _launch(rows, width, 2 * width)
    y = torch.empty(rows, width, dtype=x.dtype, device=x.device)
    _forward[grid](x, x[:, width:], y, rows, **shape)
    return y


@operator("silu_product_backward", differentiable=False)
def backward(x: Tensor, dy: Tensor) -> Tensor:
    """Return the gradient of x [N, 2 H]."""
    x, dy, (rows, width) = x.contiguous(), dy.contiguous(), dy.shape
    grid, shape = _launch(rows, width, 2 * width)
    dx = torch.empty_like(x)
    _backward[grid](x, x[:, width:], dy, dx, dx[:, width:], rows, **shape)
    return dx


@forward.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // 2)


@backward.register_fake
def _(x: Tensor, dy: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, dy: Tensor) -> Tensor:
    dx: Tensor = backward(*ctx.saved_tensors, dy)
    return dx


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def silu_product(x: Tensor) -> Tensor:
    """Return silu(gate) * value; arguments are those of the door."""
    y: Tensor = forward(x.reshape(-1, x.shape[-1]))
    return y.view(*x.shape[:-1], -1)


def _complete(forward: Operator, backward: Operator) -> None:
    """Register shapes, gradients and replicas of an operator of two tensors; its result is like the first."""
    forward.register_fake(lambda x, other: x.new_empty(x.shape))
    backward.register_fake(lambda x, other, dy: (x.new_empty(x.shape), other.new_empty(other.shape)))
    forward.register_autograd(lambda ctx, dy: backward(*ctx.saved_tensors, dy), setup_context=_save)
    fold_replicas(forward)
    fold_replicas(backward)


@operator("silu_gate")
def gated(value: Tensor, gate: Tensor) -> Tensor:
    """Return silu(gate) * value, [N, H] as both are."""
    value, gate = value.contiguous(), gate.contiguous()
    grid, shape = _launch(len(value), value.shape[1], value.shape[1])
    y = torch.empty_like(value)
    _forward[grid](gate, value, y, len(value), **shape)
    return y


@operator("silu_gate_backward", differentiable=False)
def gated_backward(value: Tensor, gate: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of value and gate [N, H]."""
    value, gate, dy = value.contiguous(), gate.contiguous(), dy.contiguous()
    grid, shape = _launch(len(value), value.shape[1], value.shape[1])
    dvalue, dgate = torch.empty_like(value), torch.empty_like(gate)
    _backward[grid](gate, value, dy, dgate, dvalue, len(value), **shape)
    return dvalue, dgate


_complete(gated, gated_backward)


def silu_gate(value: Tensor, gate: Tensor) -> Tensor:
    """Return silu(gate) * value; arguments are those of the door."""
    rows = (x.reshape(-1, value.shape[-1]) for x in (value, gate))
    y: Tensor = gated(*rows)
    return y.view(value.shape)


@triton.jit
def _rows(rows, D: tl.constexpr, BD: tl.constexpr, ROWS: tl.constexpr):
    """Return the rows [ROWS] of this program with their mask, and places [ROWS, BD] with theirs."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BD)
    inside = row < rows
    place = row.to(tl.int64)[:, None] * D + column[None, :]
    return row, inside, place, inside[:, None] & (column < D)[None, :]


@triton.jit
def _scale(x, by, y, rows, D: tl.constexpr, BD: tl.constexpr, ROWS: tl.constexpr):
    """Compute y [rows, D] of x [rows, D] and by [rows]. Grid (rows / ROWS)."""
    row, inside, place, mask = _rows(rows, D, BD, ROWS)
    scale = tl.load(by + row, mask=inside, other=0.0).to(tl.float32)
    given = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + place, (scale[:, None] * given).to(y.dtype.element_ty), mask=mask)


@triton.jit
def _scale_backward(x, by, dy, dx, dby, rows, D: tl.constexpr, BD: tl.constexpr, ROWS: tl.constexpr):
    """Compute dx [rows, D] and dby [rows]. Grid as in `_scale`."""
    row, inside, place, mask = _rows(rows, D, BD, ROWS)
    scale = tl.load(by + row, mask=inside, other=0.0).to(tl.float32)
    given = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
    gradient = tl.load(dy + place, mask=mask, other=0.0).to(tl.float32)
    tl.store(dx + place, (scale[:, None] * gradient).to(dx.dtype.element_ty), mask=mask)
    tl.store(dby + row, tl.sum(given * gradient, axis=1).to(dby.dtype.element_ty), mask=inside)


def _row_launch(rows: int, width: int) -> tuple[tuple[int], dict[str, int]]:
    """Return the grid and the parameters of a launch for rows of this width."""
    launch = forward_launch(width)
    return (-(-rows // launch.rows),), {
        "D": width, "BD": launch.padded, "ROWS": launch.rows, "num_warps": launch.warps,
    }  # fmt: skip


@operator("scale_rows")
def scaled(x: Tensor, by: Tensor) -> Tensor:
    """Return x [N, D] with each row times its number of by [N]."""
    x, by = x.contiguous(), by.contiguous()
    grid, shape = _row_launch(*x.shape)
    y = torch.empty_like(x)
    _scale[grid](x, by, y, len(x), **shape)
    return y


@operator("scale_rows_backward", differentiable=False)
def scaled_backward(x: Tensor, by: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of x [N, D] and by [N]."""
    x, by, dy = x.contiguous(), by.contiguous(), dy.contiguous()
    grid, shape = _row_launch(*x.shape)
    dx, dby = torch.empty_like(x), torch.empty_like(by)
    _scale_backward[grid](x, by, dy, dx, dby, len(x), **shape)
    return dx, dby


_complete(scaled, scaled_backward)


def scale_rows(x: Tensor, by: Tensor) -> Tensor:
    """Return by * x; arguments are those of the door."""
    y: Tensor = scaled(x.reshape(-1, x.shape[-1]), by.reshape(-1))
    return y.view(x.shape)
