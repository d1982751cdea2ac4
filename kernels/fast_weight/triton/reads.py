"""Readings of a linear fast weight by queries on a GPU: one launch forward, one backward.

A program has one mini-batch of one head, with the weights W [K, V] and bias b before it. With c = -rate g, by
which a token changes the bias, and s the factor of a query's place in the mini-batch (2407.04620):

    z_i = q_i W + b + s_i sum over j <= i of (q_i . k_j + 1) c_j,    o_i = gamma LN(z_i) + beta + q_i

The one and b, the norm, and the q that is added are there if the network has them. No mini-batch waits for
another. Everything is float32, with products of 22 bits.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.fast_weight.triton.writes import (
    load_bias,
    load_norm,
    normalised_rows,
    sizes_of,
    store_weights,
    through_norm,
)
from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.tiles import dot, load_rows, load_transposed, store_rows
from linbench.kernels.operators import fold_replicas, operator


@triton.jit
def _output(x, k_t, changes, W, bias, scale, i, BIAS: tl.constexpr):
    """Return z [C, V], and what queries see of keys, before it is scaled [C, C]."""
    seen = tl.where(i[:, None] >= i[None, :], dot(x, k_t, tl.float32) + BIAS, 0.0)
    return dot(seen * scale[:, None], changes, tl.float32, dot(x, W, tl.float32) + bias), seen


@triton.jit(do_not_specialize=["T", "rows", "scale_rows"])
def _forward(
    q, k, g, rates, starts, scales, norm, o, T, rows, scale_rows,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BIAS: tl.constexpr, SIZE: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    NORMED: tl.constexpr, RESIDUAL: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Compute o [B, T, H, V]. Grid (N mini-batches of every B H).

    q, k [B, T, H, K], g [B, T, H, V], rates [B, T, H], starts [B, H, N + 1, I, V], scales [G, SIZE] for
    `scale_rows` sequences each, norm [G, H, 2, V] for `rows` each.
    """
    count = tl.cdiv(T, SIZE)
    n, bh = place_in_grid(count)
    here, end = (bh // H * T + n * SIZE) * H + bh % H, tl.minimum(T - n * SIZE, SIZE)
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    place = (bh * (count + 1) + n) * (K + BIAS) * V
    W, bias = load_rows(starts + place, ks, K, V, vs, V), load_bias(starts + place, vs, K, V, BIAS)
    scale = tl.load(scales + bh // H // scale_rows * SIZE + i, mask=i < SIZE, other=0.0)
    x, k_t = (
        load_rows(q + here * K, i, end, H * K, ks, K),
        load_transposed(k + here * K, i, end, H * K, ks, K),
    )
    rates_n = tl.load(rates + here + i * H, mask=i < end, other=0.0)
    changes = load_rows(g + here * V, i, end, H * V, vs, V) * -rates_n[:, None]
    out, _ = _output(x, k_t, changes, W, bias, scale, i, BIAS)
    if NORMED:
        gamma, beta = load_norm(norm, bh, rows, vs, H, V)
        normalised, _ = normalised_rows(out, vs[None, :] < V, V, EPS)
        out = gamma * normalised + beta
    if RESIDUAL:
        out += load_rows(q + here * K, i, end, H * K, vs, V)
    store_rows(o + here * V, i, end, H * V, vs, V, out)


@triton.jit(do_not_specialize=["T", "rows", "scale_rows"])
def _backward(
    q, k, g, rates, starts, scales, norm, do, dq, dk, dg, drates, dstarts, dscales, dnorm,
    T, rows, scale_rows,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BIAS: tl.constexpr, SIZE: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    NORMED: tl.constexpr, RESIDUAL: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Compute gradients in the shapes of `_forward`; dscales [B, H, N, SIZE], dnorm [B, H, N, 2, V]."""
    count = tl.cdiv(T, SIZE)
    n, bh = place_in_grid(count)
    here, end = (bh // H * T + n * SIZE) * H + bh % H, tl.minimum(T - n * SIZE, SIZE)
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    place = (bh * (count + 1) + n) * (K + BIAS) * V
    scale = tl.load(scales + bh // H // scale_rows * SIZE + i, mask=i < SIZE, other=0.0)
    x, k_n = load_rows(q + here * K, i, end, H * K, ks, K), load_rows(k + here * K, i, end, H * K, ks, K)
    x_t, k_t = tl.trans(x), tl.trans(k_n)
    rates_n = tl.load(rates + here + i * H, mask=i < end, other=0.0)
    g_n = load_rows(g + here * V, i, end, H * V, vs, V)
    changes = g_n * -rates_n[:, None]
    W, bias = load_rows(starts + place, ks, K, V, vs, V), load_bias(starts + place, vs, K, V, BIAS)
    z, seen = _output(x, k_t, changes, W, bias, scale, i, BIAS)
    dz = load_rows(do + here * V, i, end, H * V, vs, V)
    dq_n = tl.zeros([C, BK], tl.float32)
    if RESIDUAL:
        dq_n += load_rows(do + here * V, i, end, H * V, ks, K)
    if NORMED:
        gamma, _ = load_norm(norm, bh, rows, vs, H, V)
        normalised, factor = normalised_rows(z, vs[None, :] < V, V, EPS)
        at = dnorm + (bh * count + n) * 2 * V + vs
        tl.store(at, tl.sum(dz * normalised, axis=0), mask=vs < V)
        tl.store(at + V, tl.sum(dz, axis=0), mask=vs < V)
        dz = through_norm(gamma * dz, normalised, factor, vs[None, :] < V, V)
    across_dz = tl.trans(dz)
    earlier, later = i[:, None] >= i[None, :], i[:, None] <= i[None, :]
    dseen = tl.where(earlier, dot(dz, tl.trans(changes), tl.float32), 0.0)
    tl.store(dscales + (bh * count + n) * SIZE + i, tl.sum(dseen * seen, axis=1), mask=i < SIZE)
    dq_n = dot(dz, tl.trans(W), tl.float32, dot(dseen * scale[:, None], k_n, tl.float32, dq_n))
    store_rows(dq + here * K, i, end, H * K, ks, K, dq_n)
    # what keys are seen with is computed transposed: a product's result is not transposed into another
    across_dseen = tl.where(later, dot(changes, across_dz, tl.float32), 0.0) * scale[None, :]
    store_rows(dk + here * K, i, end, H * K, ks, K, dot(across_dseen, x, tl.float32))
    across_seen = tl.where(later, dot(k_n, x_t, tl.float32) + BIAS, 0.0) * scale[None, :]
    dchanges = dot(across_seen, dz, tl.float32)
    store_rows(dg + here * V, i, end, H * V, vs, V, dchanges * -rates_n[:, None])
    tl.store(drates + here + i * H, -tl.sum(dchanges * g_n, axis=1), mask=i < end)
    dbias = tl.sum(dz, axis=0)[None, :]
    store_weights(dstarts + place, dot(x_t, dz, tl.float32), dbias, ks, vs, K, V, BIAS)


@operator("fast_weight_reads")
def forward(
    q: Tensor,
    k: Tensor,
    g: Tensor,
    rates: Tensor,
    starts: Tensor,
    scales: Tensor,
    norm: Tensor,
    size: int,
    normed: bool,
    residual: bool,
) -> Tensor:
    """Return o; arguments are those of `triton_reads`, with scales [G, size] and norm [G, H, 2, V]."""
    given = tuple(x.contiguous() for x in (q, k, g, rates, starts, scales, norm))
    o = torch.empty_like(given[2])
    grid, numbers, sizes = _launch(q, g, starts, scales, norm, size, normed, residual)
    _forward[grid](*given, o, *numbers, **sizes)
    return o


@operator("fast_weight_reads_backward", differentiable=False)
def backward(
    q: Tensor,
    k: Tensor,
    g: Tensor,
    rates: Tensor,
    starts: Tensor,
    scales: Tensor,
    norm: Tensor,
    do: Tensor,
    size: int,
    normed: bool,
    residual: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of all tensors but do."""
    given = tuple(x.contiguous() for x in (q, k, g, rates, starts, scales, norm, do))
    gradients = tuple(map(torch.empty_like, given[:5]))
    gradients[4][:, :, -1] = 0  # after the last mini-batch nothing is read
    grid, numbers, sizes = _launch(q, g, starts, scales, norm, size, normed, residual)
    batch, heads, count = *starts.shape[:2], starts.shape[2] - 1
    dscales = q.new_empty(batch, heads, count, size)
    dnorm = (
        q.new_empty(batch, heads, count, 2, g.shape[3])
        if normed
        else q.new_zeros(batch, heads, 1, 2, g.shape[3])
    )
    _backward[grid](*given, *gradients, dscales, dnorm, *numbers, **sizes)
    dscales, dnorm = dscales.sum(dim=(1, 2)), dnorm.sum(dim=2)
    of_groups = (x.view(len(of), -1, *x.shape[1:]).sum(dim=1) for x, of in ((dscales, scales), (dnorm, norm)))
    return *gradients, *of_groups  # type: ignore[return-value]


def _launch(
    q: Tensor,
    g: Tensor,
    starts: Tensor,
    scales: Tensor,
    norm: Tensor,
    size: int,
    normed: bool,
    residual: bool,
) -> tuple[tuple[int], tuple[int, int, int], dict[str, Any]]:
    """Return grid, numbers and parameters of a launch."""
    batch, length, heads, _ = q.shape
    sizes = sizes_of(q, g, starts[:, :, 0], size, normed) | {"RESIDUAL": residual}
    grid = (batch * heads * (starts.shape[2] - 1),)
    return grid, (length, batch // len(norm), batch // len(scales)), sizes


@forward.register_fake
def _(q: Tensor, k: Tensor, g: Tensor, *_: Any) -> Tensor:
    return g.new_empty(g.shape)


@backward.register_fake
def _(*given: Any) -> Any:
    return tuple(x.new_empty(x.shape) for x in given[:7])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.size, ctx.normed, ctx.residual = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
    gradients = backward(*ctx.saved_tensors, do, ctx.size, ctx.normed, ctx.residual)
    return *gradients, None, None, None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def triton_reads(
    q: Tensor,
    k: Tensor,
    g: Tensor,
    rates: Tensor,
    starts: Tensor,
    scales: Tensor | None,
    norm: Tensor | None,
    size: int,
    *,
    residual: bool,
) -> Tensor:
    """Return what queries read [B, T, H, V], in float32.

    Args:
        q, k: [B, T, H, K].
        g: each token's gradient by the network's output [B, T, H, V].
        rates: [B, T, H], by which a gradient changes what is read.
        starts: weights before each of N mini-batches and after the last [B, H, N + 1, I, V].
        scales: factor on a mini-batch's own changes by the place of a query [size]; None is one.
        norm: weight and bias [H, 2, V] of a layer norm; None is no norm.
        size: tokens of a mini-batch.
        residual: whether q is added.
    """
    scales = q.new_ones(size) if scales is None else scales
    known = q.new_zeros(1, q.shape[2], 2, g.shape[3]) if norm is None else norm[None]
    o: Tensor = forward(q, k, g, rates, starts, scales[None], known, size, norm is not None, residual)
    return o
