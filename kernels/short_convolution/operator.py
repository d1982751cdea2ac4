"""The convolution on a GPU as a torch operator: it compiles, differentiates, and stacks under vmap."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from linbench.kernels.operators import fold_replicas, operator, reduce_partials
from linbench.kernels.short_convolution import PARTS, triton
from linbench.kernels.short_convolution.launch import Launch, backward_launch, forward_launch, splits


def _switches(
    launch: Launch, taps: int, biased: bool, silu: bool, normed: int, state: Tensor | None
) -> dict[str, Any]:
    return {
        "W": taps,
        "BIAS": biased,
        "D": launch.head_dim,
        "BD": launch.padded,
        "G": launch.groups,
        "BT": launch.steps,
        "STATE": state is not None,
        "SILU": silu,
        "NORM": normed > 0,
        "num_warps": launch.warps,
    }


def _three(x: Tensor, given: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return three tensors: those given, and empty ones for the rest."""
    first, second, third = (*given, *[x.new_empty(len(x), 0) for _ in range(PARTS - len(given))])
    return first, second, third


@operator("short_convolution")
def forward(
    x: Tensor,
    weight: Tensor,
    state: Tensor | None,
    biased: bool,
    silu: bool,
    normed: int,
    head_dim: int,
    parts: list[int],
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return parts and last inputs of x [B, T, C], weight [replicas, rows, C] and state [B, W-1, C].

    The rows of the weight are W taps and, if it is `biased`, the bias. The first `normed` heads of `head_dim`
    channels get a norm.
    """
    x, weight, state = x.contiguous(), weight.contiguous(), None if state is None else state.contiguous()
    (batch, length, channels), (replicas, rows, _) = x.shape, weight.shape
    taps = rows - biased
    launch = forward_launch(length, parts, head_dim if normed else None)
    y, last = (
        _three(x, [x.new_empty(batch, length, part) for part in parts]),
        x.new_empty(batch, taps - 1, channels),
    )
    triton.forward[(launch.programs(batch, length, channels),)](
        x, weight, state, *y, last, length, channels, *_widths(parts), batch // replicas,
        normed, eps, **_switches(launch, taps, biased, silu, normed, state),
    )  # fmt: skip
    return *y, last


@operator("short_convolution_backward", differentiable=False)
def backward(
    x: Tensor, weight: Tensor, state: Tensor | None, dy0: Tensor,
    dy1: Tensor, dy2: Tensor, dlast: Tensor | None,
    biased: bool, silu: bool, normed: int, head_dim: int, parts: list[int], eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return gradients of x, weight and state; the last is empty if there is no state."""
    x, weight, dy = x.contiguous(), weight.contiguous(), [given.contiguous() for given in (dy0, dy1, dy2)]
    state, dlast = (None if given is None else given.contiguous() for given in (state, dlast))
    (batch, length, channels), (replicas, rows, _) = x.shape, weight.shape
    taps = rows - biased
    launch = backward_launch(batch, length, parts, head_dim if normed else None)
    dx, dstate = torch.empty_like(x), x.new_empty(batch, 0 if state is None else taps - 1, channels)
    partial = x.new_empty(batch, -(-length // launch.steps), rows, channels, dtype=torch.float32)
    triton.backward[(launch.programs(batch, length, channels),)](
        x, weight, state, *dy, dlast, dx, partial, dstate, length,
        channels, *_widths(parts), batch // replicas, normed, eps,
        **_switches(launch, taps, biased, silu, normed, state), LAST=dlast is not None,
    )  # fmt: skip
    return dx, reduce_partials(partial.view(replicas, -1, rows, channels)).to(weight.dtype), dstate


def _widths(parts: Sequence[int]) -> list[int]:
    return [*parts, *[0] * (PARTS - len(parts))]


@forward.register_fake
def _(
    x: Tensor,
    weight: Tensor,
    state: Tensor | None,
    biased: bool,
    silu: bool,
    normed: int,
    head_dim: int,
    parts: list[int],
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y = _three(x, [x.new_empty(*x.shape[:2], part) for part in parts])
    return *y, x.new_empty(x.shape[0], weight.shape[1] - biased - 1, x.shape[2])


@backward.register_fake
def _(
    x: Tensor, weight: Tensor, state: Tensor | None, dy0: Tensor,
    dy1: Tensor, dy2: Tensor, dlast: Tensor | None,
    biased: bool, silu: bool, normed: int, head_dim: int, parts: list[int], eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return (
        x.new_empty(x.shape),
        weight.new_empty(weight.shape),
        x.new_empty(x.shape[0], 0 if state is None else state.shape[1], x.shape[2]),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, state, *ctx.options = inputs
    ctx.save_for_backward(x, weight, state)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    x, weight, state = ctx.saved_tensors
    *dy, dlast = gradients
    parts = ctx.options[-2]
    given = [
        x.new_zeros(*x.shape[:2], part) if one is None else one for one, part in zip(dy, parts, strict=False)
    ]
    dx, dweight, dstate = backward(x, weight, state, *_three(x, given), dlast, *ctx.options)
    return dx, dweight, None if state is None else dstate, *[None] * 6


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def short_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Tensor | None,
    activation: str | None,
    l2_heads: tuple[int, int] | None,
    parts: tuple[int, ...],
    eps: float,
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return parts and last inputs; arguments are those of the door."""
    channels, head_dim = l2_heads or (0, 1)
    normed = channels // head_dim
    apart = splits(parts, head_dim if normed else None)
    *y, last = forward(
        x,
        (weight if bias is None else torch.cat([weight, bias[None].to(weight.dtype)]))[None],
        state,
        bias is not None,
        activation == "silu",
        normed,
        head_dim,
        parts if apart else (x.shape[2],),
        float(eps),
    )
    return tuple(y[: len(parts)]) if apart else torch.split(y[0], list(parts), dim=-1), last
