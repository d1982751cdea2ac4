"""The channel decay on a GPU: one launch forward, one and a sum backward.

Rows [N, 1, C] of all channels are taken as in kernels/row_tiles.py. Backward a program stores its part of the
gradient of base in a place of its own: no atomics, the same sum every time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.operators import fold_replicas, operator, reduce_partials
from linbench.kernels.row_tiles import backward_launch, forward_launch, place, program_index


@triton.jit
def _decay(offset, base, at, mask, replica, bound, C, BC: tl.constexpr, BOUNDED: tl.constexpr):
    """Return log decays [ROWS, BC] and their slopes."""
    column = tl.arange(0, BC)[None, :]
    logit = tl.load(base + replica * C + column, mask=column < C, other=0.0).to(tl.float32)
    logit += tl.load(offset + at, mask=mask, other=0.0).to(tl.float32)
    if BOUNDED:
        y = -bound * tl.sigmoid(logit)
        return y, y * tl.sigmoid(-logit)
    y = -tl.exp(tl.where(logit > 88.0, 88.0, logit))  # `LARGEST_LOG`; not a number stays so
    return y, y


@triton.jit
def _forward(
    offset, base, y, rows, C, programs, bound, ROWS: tl.constexpr, BC: tl.constexpr, BOUNDED: tl.constexpr
):
    """Compute y. Grid (replicas * programs). offset, y [replicas * rows, C], base [replicas, C]."""
    replica, _, program = program_index(tl.program_id(0).to(tl.int64), programs, 1)
    at, mask = place(program, replica, 0, rows, 1, C, ROWS, BC)
    tl.store(y + at, _decay(offset, base, at, mask, replica, bound, C, BC, BOUNDED)[0], mask=mask)


@triton.jit
def _backward(
    offset, base, dy, doffset, sums, rows, C, programs, bound, ROWS: tl.constexpr,
    BC: tl.constexpr, TILES: tl.constexpr, BOUNDED: tl.constexpr
):  # fmt: skip
    """Compute doffset, and sums [replicas, programs, C], parts of the gradient of base.

    Grid (replicas * programs), TILES tiles each.
    """
    replica, _, program = program_index(tl.program_id(0).to(tl.int64), programs, 1)
    dbase = tl.zeros([ROWS, BC], tl.float32)
    for i in range(TILES):
        at, mask = place(program + i * programs, replica, 0, rows, 1, C, ROWS, BC)
        dlogit = (
            tl.load(dy + at, mask=mask, other=0.0)
            * _decay(offset, base, at, mask, replica, bound, C, BC, BOUNDED)[1]
        )
        tl.store(doffset + at, dlogit.to(doffset.dtype.element_ty), mask=mask)
        dbase += tl.where(mask, dlogit, 0.0)
    column = tl.arange(0, BC)[None, :]
    tl.store(
        sums + (replica * programs + program) * C + column,
        tl.sum(dbase, axis=0, keep_dims=True),
        mask=column < C,
    )


@operator("channel_decay")
def forward(offset: Tensor, base: Tensor, bound: float | None) -> Tensor:
    """Return log decays [N, C] in float32.

    Takes offset [N, C] and base [replicas, C], with `replicas` dividing N.
    """
    offset, base = offset.contiguous(), base.contiguous()
    (replicas, channels), rows, launch = base.shape, len(offset) // len(base), forward_launch(base.shape[1])
    y, programs = torch.empty_like(offset, dtype=torch.float32), -(-rows // launch.rows)
    _forward[(replicas * programs,)](
        offset, base, y, rows, channels, programs, bound or 0.0, ROWS=launch.rows,
        BC=launch.padded, BOUNDED=bound is not None, num_warps=launch.warps,
    )  # fmt: skip
    return y


@operator("channel_decay_backward", differentiable=False)
def backward(offset: Tensor, base: Tensor, dy: Tensor, bound: float | None) -> tuple[Tensor, Tensor]:
    """Return the gradients of offset, and of base in float32."""
    offset, base, dy = offset.contiguous(), base.contiguous(), dy.contiguous()
    (replicas, channels), rows, launch = (
        base.shape,
        len(offset) // len(base),
        backward_launch(*offset.shape, summed=True),
    )
    programs = -(-rows // (launch.rows * launch.tiles))
    doffset, sums = (
        torch.empty_like(offset),
        offset.new_empty(replicas, programs, channels, dtype=torch.float32),
    )
    _backward[(replicas * programs,)](
        offset, base, dy, doffset, sums, rows, channels, programs, bound or 0.0,
        ROWS=launch.rows, BC=launch.padded, TILES=launch.tiles,
        BOUNDED=bound is not None, num_warps=launch.warps,
    )  # fmt: skip
    return doffset, reduce_partials(sums)


@forward.register_fake
def _(offset: Tensor, base: Tensor, bound: float | None) -> Tensor:
    return offset.new_empty(offset.shape, dtype=torch.float32)


@backward.register_fake
def _(offset: Tensor, base: Tensor, dy: Tensor, bound: float | None) -> tuple[Tensor, Tensor]:
    return offset.new_empty(offset.shape), base.new_empty(base.shape, dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.bound = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    offset, base = ctx.saved_tensors
    doffset, dbase = backward(offset, base, dy, ctx.bound)
    return doffset, dbase.to(base.dtype), None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def channel_decay(offset: Tensor, base: Tensor, bound: float | None) -> Tensor:
    """Return log decays; arguments are those of the door."""
    y: Tensor = forward(offset.reshape(-1, base.numel()), base.reshape(1, -1), bound)
    return y.view(*offset.shape[:-1], *base.shape)
