"""The scan on a GPU: one launch forward, one backward.

A program has a sequence and some channels, and goes through the steps a tile at a time, forward from the
first, backward from the last: inside a tile an associative scan, from tile to tile one row. Everything is
read once, in float32.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.operators import fold_replicas, operator


@triton.jit
def then(a, b, next_a, next_b):
    """Join two steps h -> a h + b to one."""
    return a * next_a, next_a * b + next_b


@triton.jit
def _place(T, C, BC: tl.constexpr):
    """Return where this program's sequence begins in [B, T, C] and in [B, C], and its channels [1, BC].

    The channels come with their mask.
    """
    program, blocks = tl.program_id(0), tl.cdiv(C, BC)
    row, c = (program // blocks).to(tl.int64), program % blocks * BC + tl.arange(0, BC)[None, :]
    return row * T * C, row * C, c, c < C


@triton.jit
def _forward(a, b, state, h, T, C, BT: tl.constexpr, BC: tl.constexpr):
    """Compute h. Grid (B * blocks of channels). a, b, h [B, T, C], state [B, C]."""
    start, one, c, mask = _place(T, C, BC)
    i = tl.arange(0, BT)[:, None]
    carried = tl.load(state + one + c, mask=mask, other=0.0)
    for first in range(0, T, BT):
        place, here = start + (first + i) * C + c, mask & (first + i < T)
        at = tl.load(a + place, mask=here, other=1.0)
        bt = tl.load(b + place, mask=here, other=0.0)
        left, own = tl.associative_scan((at, bt), 0, then)
        made = own + left * carried
        tl.store(h + place, made, mask=here)
        carried = tl.sum(tl.where(i == BT - 1, made, 0.0), axis=0, keep_dims=True)


@triton.jit
def _backward(a, h, state, dh, da, db, dstate, T, C, BT: tl.constexpr, BC: tl.constexpr):
    """Compute the gradients of a, b and state. Grid as in `_forward`.

    After the last step a is one and dh zero.
    """
    start, one, c, mask = _place(T, C, BC)
    i = tl.arange(0, BT)[:, None]
    begun = tl.load(state + one + c, mask=mask, other=0.0)
    carried = tl.zeros([1, BC], tl.float32)
    for tile in range(tl.cdiv(T, BT)):
        first = (tl.cdiv(T, BT) - 1 - tile) * BT
        t = first + i
        place, here = start + t * C + c, mask & (t < T)
        after = tl.load(a + place + C, mask=mask & (t < T - 1), other=1.0)
        given = tl.load(dh + place, mask=here, other=0.0)
        left, own = tl.associative_scan((after, given), 0, then, reverse=True)
        made = own + left * carried
        before = tl.load(h + place - C, mask=here & (t > 0), other=0.0) + tl.where(t == 0, begun, 0.0)
        tl.store(db + place, made, mask=here)
        tl.store(da + place, made * before, mask=here)
        carried = tl.sum(tl.where(i == 0, made, 0.0), axis=0, keep_dims=True)
    tl.store(dstate + one + c, carried * tl.load(a + start + c, mask=mask, other=0.0), mask=mask)


def launch(batch: int, length: int, channels: int) -> tuple[tuple[int], dict[str, int]]:
    """Return the parameters of a launch: tiles of up to 32 channels and 2048 numbers, four warps."""
    block, steps = (1 << (n - 1).bit_length() for n in (channels, length))
    block = min(32, block)
    return (batch * -(-channels // block),), {
        "BT": max(2, min(steps, 2048 // block)),
        "BC": block,
        "num_warps": 4,
    }


@operator("scan")
def forward(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    """Return h [B, T, C] of a, b [B, T, C] and state [B, C] in float32."""
    a, b, state = a.contiguous(), b.contiguous(), state.contiguous()
    h = torch.empty_like(b)
    grid, shape = launch(*b.shape)
    _forward[grid](a, b, state, h, b.shape[1], b.shape[2], **shape)
    return h


@operator("scan_backward", differentiable=False)
def backward(a: Tensor, h: Tensor, state: Tensor, dh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of a, b and state."""
    a, h, state, dh = a.contiguous(), h.contiguous(), state.contiguous(), dh.contiguous()
    da, db, dstate = torch.empty_like(h), torch.empty_like(h), torch.empty_like(state)
    grid, shape = launch(*h.shape)
    _backward[grid](a, h, state, dh, da, db, dstate, h.shape[1], h.shape[2], **shape)
    return da, db, dstate


@forward.register_fake
def _(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    return b.new_empty(b.shape)


@backward.register_fake
def _(a: Tensor, h: Tensor, state: Tensor, dh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return h.new_empty(h.shape), h.new_empty(h.shape), state.new_empty(state.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, _, state = inputs
    ctx.save_for_backward(a, output, state)


def _differentiate(ctx: Any, dh: Tensor) -> tuple[Tensor, ...]:
    da, db, dstate = backward(*ctx.saved_tensors, dh)
    return da, db, dstate


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def triton_scan(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    """Return h; arguments are those of `reference`."""
    h: Tensor = forward(a, b, state)
    return h
