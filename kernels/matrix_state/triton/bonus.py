"""What a token's own write adds where it is read before it, o_t + scale (q_t . (u k_t)) v_t: one launch forward, one and a sum backward.

A program takes a tile of tokens of one head, as in kernels/rows.py. Backward it takes several and leaves what they add to the gradient of u in a
place of its own.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.matrix_state.triton.launch import power_of_two
from linbench.kernels.operators import fold_replicas, operator, summed
from linbench.kernels.rows import backward_launch, place


@triton.jit
def _forward(o, q, k, v, u, y, scale, tokens, tiles, H, K, V, TILE: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):
    """Grid (replicas * tiles, H). q, k [replicas * tokens, H, K], o, v, y [.., H, V], u [replicas, H, K]."""
    program = tl.program_id(0).to(tl.int64)
    keys, in_keys = place(program % tiles, program // tiles, tl.program_id(1), tokens, H, K, TILE, BK)
    values, in_values = place(program % tiles, program // tiles, tl.program_id(1), tokens, H, V, TILE, BV)
    key = tl.arange(0, BK)[None, :]
    weight = scale * tl.load(u + (program // tiles * H + tl.program_id(1)) * K + key, mask=key < K, other=0.0).to(tl.float32)
    strength = tl.load(q + keys, mask=in_keys, other=0.0).to(tl.float32) * tl.load(k + keys, mask=in_keys, other=0.0).to(tl.float32) * weight
    own = tl.sum(strength, axis=1, keep_dims=True) * tl.load(v + values, mask=in_values, other=0.0).to(tl.float32)
    tl.store(y + values, (tl.load(o + values, mask=in_values, other=0.0).to(tl.float32) + own).to(y.dtype.element_ty), mask=in_values)


@triton.jit
def _backward(
    q, k, v, u, dy, dq, dk, dv, du, scale, tokens, programs, H, K, V,
    TILE: tl.constexpr, TILES: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Grid (replicas * programs, H), TILES tiles each; du [replicas, programs, H, K] in float32."""
    program = tl.program_id(0).to(tl.int64)
    replica, key = program // programs, tl.arange(0, BK)[None, :]
    weight = scale * tl.load(u + (replica * H + tl.program_id(1)) * K + key, mask=key < K, other=0.0).to(tl.float32)
    sums = tl.zeros([TILE, BK], tl.float32)
    for i in range(TILES):
        keys, in_keys = place(program % programs + i * programs, replica, tl.program_id(1), tokens, H, K, TILE, BK)
        values, in_values = place(program % programs + i * programs, replica, tl.program_id(1), tokens, H, V, TILE, BV)
        q_here, k_here = tl.load(q + keys, mask=in_keys, other=0.0).to(tl.float32), tl.load(k + keys, mask=in_keys, other=0.0).to(tl.float32)
        v_here, slope = tl.load(v + values, mask=in_values, other=0.0).to(tl.float32), tl.load(dy + values, mask=in_values, other=0.0).to(tl.float32)
        strength = tl.sum(q_here * k_here * weight, axis=1, keep_dims=True)
        dstrength = tl.sum(slope * v_here, axis=1, keep_dims=True)
        tl.store(dv + values, (strength * slope).to(dv.dtype.element_ty), mask=in_values)
        tl.store(dq + keys, (dstrength * weight * k_here).to(dq.dtype.element_ty), mask=in_keys)
        tl.store(dk + keys, (dstrength * weight * q_here).to(dk.dtype.element_ty), mask=in_keys)
        sums += scale * dstrength * q_here * k_here
    tl.store(du + (program * H + tl.program_id(1)) * K + key, tl.sum(sums, axis=0, keep_dims=True), mask=key < K)


def shape(key_dim: int, value_dim: int) -> dict[str, int]:
    """Tiles of 2048 numbers of the wider of the two with four warps."""
    keys, values = power_of_two(key_dim), power_of_two(value_dim)
    return {"TILE": max(1, 2048 // max(keys, values)), "BK": keys, "BV": values, "num_warps": 4}


@operator("bonus")
def forward(o: Tensor, q: Tensor, k: Tensor, v: Tensor, u: Tensor, scale: float) -> Tensor:
    """q, k [B, T, H, K], o, v [B, T, H, V], u [replicas, H, K] with `replicas` dividing B -> [B, T, H, V] in the dtype of v."""
    o, q, k, v, u = (x.contiguous() for x in (o, q, k, v, u))
    (replicas, heads, key_dim), value_dim, tile = u.shape, v.shape[3], shape(u.shape[2], v.shape[3])
    tokens, y = v.shape[0] * v.shape[1] // replicas, torch.empty_like(v)
    tiles = -(-tokens // tile["TILE"])
    _forward[(replicas * tiles, heads)](o, q, k, v, u, y, scale, tokens, tiles, heads, key_dim, value_dim, **tile)
    return y


@operator("bonus_backward", differentiable=False)
def backward(q: Tensor, k: Tensor, v: Tensor, u: Tensor, dy: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, and of u in float32."""
    q, k, v, u, dy = (x.contiguous() for x in (q, k, v, u, dy))
    (replicas, heads, key_dim), value_dim, tile = u.shape, v.shape[3], shape(u.shape[2], v.shape[3])
    tokens = v.shape[0] * v.shape[1] // replicas
    each = backward_launch(replicas * tokens * heads, max(key_dim, value_dim), summed=True).tiles
    programs = -(-tokens // (tile["TILE"] * each))
    dq, dk, dv, sums = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), u.new_empty(replicas, programs, heads, key_dim, dtype=torch.float32)
    _backward[(replicas * programs, heads)](
        q, k, v, u, dy, dq, dk, dv, sums, scale, tokens, programs, heads, key_dim, value_dim, TILES=each, **tile
    )  # fmt: skip
    return dq, dk, dv, summed(sums)


@forward.register_fake
def _(o: Tensor, q: Tensor, k: Tensor, v: Tensor, u: Tensor, scale: float) -> Tensor:
    return v.new_empty(v.shape)


@backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, u: Tensor, dy: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), u.new_empty(u.shape, dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    o, *tensors, ctx.scale = inputs
    ctx.dtype = o.dtype
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    dq, dk, dv, du = backward(*ctx.saved_tensors, dy, ctx.scale)
    return dy.to(ctx.dtype), dq, dk, dv, du.to(ctx.saved_tensors[3].dtype), None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def with_own_write(o: Tensor, q: Tensor, k: Tensor, v: Tensor, u: Tensor, scale: float) -> Tensor:
    """u [H, K]; the rest as of `forward`."""
    y: Tensor = forward(o, q, k, v, u[None], scale)
    return y
