"""Token shift on a GPU as a torch operator: it compiles, differentiates, and stacks under vmap."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from linbench.kernels.operators import fold_replicas, operator, reduce_partials
from linbench.kernels.token_shift import triton
from linbench.kernels.token_shift.launch import backward_launch, forward_launch

MOST = 6
"""Largest number of streams of a launch."""


def _six(given: Sequence[Tensor]) -> list[Tensor | None]:
    return [*given, *[None] * (MOST - len(given))]


@operator("token_shift")
def forward(
    x: Tensor, mix: Tensor, last: Tensor | None, offset: list[Tensor], dtype: torch.dtype
) -> list[Tensor]:
    """Return the streams of x [B, T, D], mix [replicas, N, D], last [B, D] and N offsets [B, T, D] or none.

    `replicas` divides B, and N is at most MOST.
    """
    x, mix, last, offset = (
        x.contiguous(),
        mix.contiguous(),
        None if last is None else last.contiguous(),
        [each.contiguous() for each in offset],
    )
    (batch, length, width), (replicas, streams, _) = x.shape, mix.shape
    launch, y = forward_launch(length, width), [torch.empty_like(x, dtype=dtype) for _ in range(streams)]
    triton.forward[(launch.programs(batch, length, width),)](
        x, mix, last, *_six(offset), *_six(y), length, width, batch // replicas,
        N=streams, ROWS=launch.rows, BD=launch.block, LAST=last is not None,
        OFFSET=len(offset) > 0, num_warps=launch.warps,
    )  # fmt: skip
    return y


@operator("token_shift_backward", differentiable=False)
def backward(
    x: Tensor, mix: Tensor, last: Tensor | None, offset: list[Tensor], dy: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Return gradients of x, mix, last (empty if there is none) and the offsets."""
    x, mix, last = x.contiguous(), mix.contiguous(), None if last is None else last.contiguous()
    offset, dy = ([each.contiguous() for each in given] for given in (offset, dy))
    (batch, length, width), (replicas, streams, _) = x.shape, mix.shape
    launch = backward_launch(batch, length, width)
    dx, dlast, doffset = (
        torch.empty_like(x),
        x.new_empty(batch, 0 if last is None else width),
        [torch.empty_like(each) for each in offset],
    )
    partial = x.new_empty(batch, launch.chunks(length), streams, width, dtype=torch.float32)
    triton.backward[(launch.programs(batch, length, width),)](
        x, mix, last, *_six(offset), *_six(dy), dx, partial,
        dlast, *_six(doffset), length, width, batch // replicas,
        N=streams, ROWS=launch.rows, STEPS=launch.steps, BD=launch.block,
        LAST=last is not None, OFFSET=len(offset) > 0, num_warps=launch.warps,
    )  # fmt: skip
    return dx, reduce_partials(partial.view(replicas, -1, streams, width)).to(mix.dtype), dlast, doffset


@forward.register_fake
def _(x: Tensor, mix: Tensor, last: Tensor | None, offset: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return [x.new_empty(x.shape, dtype=dtype) for _ in range(mix.shape[1])]


@backward.register_fake
def _(
    x: Tensor, mix: Tensor, last: Tensor | None, offset: list[Tensor], dy: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    dlast = x.new_empty(x.shape[0], 0 if last is None else x.shape[2])
    return (
        x.new_empty(x.shape),
        mix.new_empty(mix.shape),
        dlast,
        [each.new_empty(each.shape) for each in offset],
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, mix, last, offset, _ = inputs
    ctx.save_for_backward(x, mix, last, *offset)


def _differentiate(ctx: Any, dy: list[Tensor]) -> tuple[Any, ...]:
    x, mix, last, *offset = ctx.saved_tensors
    dx, dmix, dlast, doffset = backward(x, mix, last, offset, dy)
    return dx, dmix, None if last is None else dlast, doffset, None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def token_shift(
    x: Tensor, mix: Tensor, last: Tensor | None, offset: Sequence[Tensor] | None, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Return the streams; arguments are those of the door."""
    last, given = None if last is None else last.to(x.dtype), list(offset or ())
    parts = [
        forward(x, mix[None, i : i + MOST], last, given[i : i + MOST], dtype)
        for i in range(0, len(mix), MOST)
    ]
    return tuple(stream for part in parts for stream in part)
