"""DeltaFormer's corrected values on a GPU: the operator, and gradients of what its scores are made of.

With u and g of `corrected_blocks`, the gradient of u is g to v, -g . P u to beta, and to the scores -beta P
(g . u - g . P u): as in attention, with g for the gradient of what is read and u for values. One kernel's
program has a block of queries and goes through the keys before, another's has a block of keys.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.attention.triton.corrected_blocks import (
    blocks_of,
    blocks_shape,
    prepare,
    scores,
    solve,
)
from linbench.kernels.attention.triton.gated import place_of_block
from linbench.kernels.matrix_state.triton.launch import power_of_two
from linbench.kernels.matrix_state.triton.tiles import dot, load_rows, load_transposed, store_rows
from linbench.kernels.operators import fold_replicas, operator


@triton.jit
def _reduced(
    q, k, lse, u, g, read, delta, dbeta, T, scale,
    SQ: tl.constexpr, SK: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute delta [B, H, T] = g . P u, and dbeta [B, T, H], which is the same but for its sign.

    `read` has P u of earlier blocks alone. Grid (T / C of every B H).
    """
    first, sequence, head, bh = place_of_block(T, H, C, False)
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    here, end = sequence + first, T - first
    values = (here * H + head) * V
    q_m = load_rows(q + here * SQ + head * K, i, end, SQ, ks, K)
    lse_m = tl.load(lse + bh * T + first + i, mask=i < end, other=float("inf"))
    s = scores(q_m, k + here * SK + head * K, i, end, ks, scale, SK, K, DT) - lse_m[:, None]
    p = tl.exp2(tl.where(i[:, None] > i[None, :], s, float("-inf")))
    g_m = load_rows(g + values, i, end, H * V, vs, V)
    own = p * dot(g_m, load_transposed(u + values, i, end, H * V, vs, V), DT)
    before = g_m.to(tl.float32) * load_rows(read + values, i, end, H * V, vs, V)
    delta_m = tl.sum(own, axis=1) + tl.sum(before, axis=1)
    tl.store(delta + bh * T + first + i, delta_m, mask=i < end)
    tl.store(dbeta + here * H + head + i * H, -delta_m, mask=i < end)


@triton.jit
def _score_gradients(
    a, other, beta, lse, delta, y, x, da, T, scale,
    SA: tl.constexpr, SO: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute the gradient da [B, T, H, K] of queries a, from keys `other`, y = g and x = u.

    BACK, of keys a: then `other` are queries, y is u and x is g. Grid (T / C of every B H).
    """
    first, sequence, head, bh = place_of_block(T, H, C, not BACK)
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    here, end = sequence + first, T - first
    a_m = load_rows(a + here * SA + head * K, i, end, SA, ks, K)
    y_m = load_rows(y + (here * H + head) * V, i, end, H * V, vs, V)
    da_m = tl.zeros([C, BK], tl.float32)
    for n in range(first if BACK else 0, T if BACK else first + C, C):
        # where the block of queries begins, which have lse, delta and beta
        queries = n if BACK else first
        x_n = load_transposed(x + ((sequence + n) * H + head) * V, i, T - n, H * V, vs, V)
        dp = dot(y_m, x_n, DT)
        b_n = other + (sequence + n) * SO + head * K
        s = scores(a_m, b_n, i, T - n, ks, scale, SO, K, DT)
        there = i < T - queries
        lse_m = tl.load(lse + bh * T + queries + i, mask=there, other=float("inf"))
        delta_m = tl.load(delta + bh * T + queries + i, mask=there, other=0.0)
        beta_m = tl.load(beta + (sequence + queries + i) * H + head, mask=there, other=0.0)
        if BACK:
            seen = first + i[:, None] < n + i[None, :]
            ds = tl.exp2(tl.where(seen, s - lse_m[None, :], float("-inf")))
            ds *= (delta_m[None, :] - dp) * beta_m[None, :]
        else:
            seen = first + i[:, None] > n + i[None, :]
            ds = tl.exp2(tl.where(seen, s - lse_m[:, None], float("-inf")))
            ds *= (delta_m[:, None] - dp) * beta_m[:, None]
        da_m = dot(ds.to(DT), load_rows(b_n, i, T - n, SO, ks, K), DT, da_m)
    store_rows(da + (here * H + head) * K, i, end, H * K, ks, K, da_m * scale)


@operator("corrected_values")
def forward(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return u, and for `backward` what is known of its blocks: lse, inverses, and what they read of others.

    Arguments are those of `triton_corrected_values`.
    """
    blocks = blocks_of(q, k, v, beta, *_unfilled(k, v), scale)
    prepare(blocks)
    u, read = solve(blocks, v)
    return u, blocks.lse, blocks.inverses, read


@operator("corrected_values_backward", differentiable=False)
def backward(
    q: Tensor,
    k: Tensor,
    beta: Tensor,
    u: Tensor,
    lse: Tensor,
    inverses: Tensor,
    read: Tensor,
    du: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of q, k, v and, in float32, beta."""
    blocks = blocks_of(q, k, u, beta, lse, inverses, scale)
    g, _ = solve(blocks, du, back=True)
    dq, dk, dbeta, delta = q.new_empty(q.shape), k.new_empty(k.shape), *map(torch.empty_like, (beta, lse))
    q, k, beta, *_, (apart_q, apart_k), sizes = blocks
    length, value_dim = u.shape[1], u.shape[3]
    sizes = {**sizes, "V": value_dim, "BV": power_of_two(value_dim)}
    grid = (blocks.of_each * blocks.rows,)
    _reduced[grid](q, k, lse, u, g, read, delta, dbeta, length, scale, SQ=apart_q, SK=apart_k, **sizes)
    known = (beta, lse, delta)
    for a, other, y, x, da, apart_a, apart_other, back in (
        (q, k, g, u, dq, apart_q, apart_k, False),
        (k, q, u, g, dk, apart_k, apart_q, True),
    ):
        _score_gradients[grid](
            a, other, *known, y, x, da, length, scale, SA=apart_a, SO=apart_other, BACK=back, **sizes
        )
    return dq, dk, g, dbeta


def _unfilled(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Allocate lse [B, H, T] and inverses [B, H, N, C, C]."""
    shape = blocks_shape(k, v)
    lse = k.new_empty((*shape[:2], k.shape[1]), dtype=torch.float32)
    return lse, k.new_empty(shape, dtype=torch.float32)


@forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return v.new_empty(v.shape), *_unfilled(k, v), v.new_empty(v.shape, dtype=torch.float32)


@backward.register_fake
def _(q: Tensor, k: Tensor, beta: Tensor, u: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), u.new_empty(u.shape), beta.new_empty(beta.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, _, beta, ctx.scale = inputs
    ctx.save_for_backward(q, k, beta, *output)
    ctx.mark_non_differentiable(*output[1:])


def _differentiate(ctx: Any, du: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    return *backward(*ctx.saved_tensors, du, ctx.scale), None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def triton_corrected_values(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float) -> Tensor:
    """Return u_i = v_i - beta_i sum_{j < i} softmax_{j < i}(scale q_i . k_j) u_j.

    Args:
        q, k: [B, T, H, K].
        v: [B, T, H, V].
        beta: [B, T, H].

    Returns: [B, T, H, V] in the dtype of v.
    """
    u: Tensor = forward(q.to(v.dtype), k.to(v.dtype), v, beta.float(), scale)[0]
    return u
