"""The decay gate on a GPU: one launch forward, one and a sum backward.

Rows [N, H] are taken a tile at a time, H padded to a power of two. Backward a program stores its part of the
gradients of A_log and bias in a place of its own: no atomics, the same sum every time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.operators import fold_replicas, operator, reduce_partials


@triton.jit
def _place(program, programs, rows, H, tile: tl.constexpr, BH: tl.constexpr):
    """Return the replica, heads [1, BH] with their mask, and offsets [TILE, BH] of a tile with their mask."""
    replica = program // programs
    row, head = program % programs * tile + tl.arange(0, tile)[:, None], tl.arange(0, BH)[None, :]
    here = head < H
    return replica, head, here, (replica * rows + row) * H + head, here & (row < rows)


@triton.jit
def _softplus(z):
    """Return log(1 + e^z) to the last bits: what rounding takes of 1 + e^-|z| is added again."""
    u = tl.exp(-tl.abs(z))
    w = 1.0 + u
    return tl.maximum(z, 0.0) + tl.where(w == 1.0, u, tl.log(w) * (u / tl.where(w == 1.0, 1.0, w - 1.0)))


@triton.jit
def _forward(step, A_log, bias, y, rows, H, programs, TILE: tl.constexpr, BH: tl.constexpr):
    """Compute y. Grid (replicas * programs). step, y [replicas * rows, H]; A_log, bias [replicas, H]."""
    replica, head, here, place, mask = _place(tl.program_id(0).to(tl.int64), programs, rows, H, TILE, BH)
    rate = tl.exp(tl.load(A_log + replica * H + head, mask=here, other=0.0).to(tl.float32))
    z = tl.load(step + place, mask=mask, other=0.0).to(tl.float32) + tl.load(
        bias + replica * H + head, mask=here, other=0.0
    ).to(tl.float32)
    tl.store(y + place, -rate * _softplus(z), mask=mask)


@triton.jit
def _backward(step, A_log, bias, dy, dstep, sums, rows, H, programs, TILE: tl.constexpr, BH: tl.constexpr):
    """Compute dstep, and sums [replicas, programs, 2, H], parts of the gradients of A_log and bias.

    Grid (replicas * programs).
    """
    program = tl.program_id(0).to(tl.int64)
    replica, head, here, place, mask = _place(program, programs, rows, H, TILE, BH)
    rate = tl.exp(tl.load(A_log + replica * H + head, mask=here, other=0.0).to(tl.float32))
    z = tl.load(step + place, mask=mask, other=0.0).to(tl.float32) + tl.load(
        bias + replica * H + head, mask=here, other=0.0
    ).to(tl.float32)
    scaled = -rate * tl.load(dy + place, mask=mask, other=0.0)
    dz = scaled * tl.sigmoid(z)
    tl.store(dstep + place, dz.to(dstep.dtype.element_ty), mask=mask)
    sums += program * 2 * H + head
    tl.store(sums, tl.sum(scaled * _softplus(z), axis=0, keep_dims=True), mask=here)
    tl.store(sums + H, tl.sum(dz, axis=0, keep_dims=True), mask=here)


def launch(heads: int) -> dict[str, int]:
    """Return the parameters of a launch: tiles of 512 numbers and four warps, wider if a row is.

    Tiles are small since there are few numbers, and programs should fill a GPU.
    """
    padded = 1 << (heads - 1).bit_length()
    return {"TILE": max(1, 512 // padded), "BH": padded, "num_warps": max(4, min(16, padded // 1024))}


@operator("decay_gate")
def forward(step: Tensor, A_log: Tensor, bias: Tensor) -> Tensor:
    """Return log decays [N, H] in float32.

    Takes step [N, H], A_log and bias [replicas, H], with `replicas` dividing N.
    """
    step, A_log, bias = step.contiguous(), A_log.contiguous(), bias.contiguous()
    (replicas, heads), rows, shape = A_log.shape, len(step) // len(A_log), launch(step.shape[1])
    y = torch.empty_like(step, dtype=torch.float32)
    programs = -(-rows // shape["TILE"])
    _forward[(replicas * programs,)](step, A_log, bias, y, rows, heads, programs, **shape)
    return y


@operator("decay_gate_backward", differentiable=False)
def backward(step: Tensor, A_log: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of step, and of A_log and bias [replicas, 2, H] in float32."""
    step, A_log, bias, dy = step.contiguous(), A_log.contiguous(), bias.contiguous(), dy.contiguous()
    (replicas, heads), rows, shape = A_log.shape, len(step) // len(A_log), launch(step.shape[1])
    programs = -(-rows // shape["TILE"])
    dstep, sums = torch.empty_like(step), step.new_empty(replicas, programs, 2, heads, dtype=torch.float32)
    _backward[(replicas * programs,)](step, A_log, bias, dy, dstep, sums, rows, heads, programs, **shape)
    return dstep, reduce_partials(sums)


@forward.register_fake
def _(step: Tensor, A_log: Tensor, bias: Tensor) -> Tensor:
    return step.new_empty(step.shape, dtype=torch.float32)


@backward.register_fake
def _(step: Tensor, A_log: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    return step.new_empty(step.shape), A_log.new_empty(len(A_log), 2, A_log.shape[1], dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
    _, A_log, bias = ctx.saved_tensors
    dstep, both = backward(*ctx.saved_tensors, dy)
    return dstep, both[:, 0].to(A_log.dtype), both[:, 1].to(bias.dtype)


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def decay_gate(step: Tensor, A_log: Tensor, bias: Tensor) -> Tensor:
    """Return log decays; arguments are those of the door."""
    y: Tensor = forward(step.reshape(-1, step.shape[-1]), A_log[None], bias[None])
    return y.view(step.shape)
