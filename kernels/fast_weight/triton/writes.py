"""Writes of keys into a linear fast weight on a GPU: one launch forward, one backward.

A program has one head of one sequence and goes through the mini-batches, with the weights W [K, V] and their
bias in registers. With x a key, its output z = x W, and g the gradient of the loss by z (2407.04620):

    g = J (gamma (gamma n + beta - target)),   n = LN(z),   J = (I - 1 1^T / V - n n^T / V) / sd(z)
    W <- W - sum over the mini-batch of rate x g^T

Without a norm g = z - target. Backward goes from the last mini-batch to the first with the gradient of W.
Reading is no part of it: queries read all mini-batches at once (`reads`).

Everything is float32, with products of 22 bits.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.fast_weight.call import NORM_EPS
from linbench.kernels.matrix_state.triton.launch import power_of_two
from linbench.kernels.matrix_state.triton.tiles import dot, load_rows, load_transposed, store_rows
from linbench.kernels.operators import fold_replicas, operator


@triton.jit
def _mean(x, V: tl.constexpr):
    """Return the mean [C, 1] of the V columns of x [C, BV], which is zero in all others."""
    return tl.sum(x, axis=1)[:, None] / V


@triton.jit
def normalised_rows(z, there, V: tl.constexpr, EPS: tl.constexpr):
    """Return z [C, BV] with mean zero and variance one where it is `there`, and by what it was multiplied."""
    centred = tl.where(there, z - _mean(z, V), 0.0)
    factor = 1.0 / tl.sqrt(_mean(centred * centred, V) + EPS)
    return centred * factor, factor


@triton.jit
def through_norm(x, normalised, factor, there, V: tl.constexpr):
    """Return J x, for a norm's Jacobian J: symmetric, so the same for slopes and for their gradients."""
    rest = x - _mean(x, V) - normalised * _mean(normalised * x, V)
    return tl.where(there, factor * rest, 0.0)


@triton.jit
def load_norm(norm, bh, rows, vs, H: tl.constexpr, V: tl.constexpr):
    """Load gamma and beta [1, BV] of a head; norm [G, H, 2, V] has one for `rows` sequences each."""
    at = norm + (bh // H // rows * H + bh % H) * 2 * V + vs[None, :]
    there = vs[None, :] < V
    return tl.load(at, mask=there, other=0.0), tl.load(at + V, mask=there, other=0.0)


@triton.jit
def load_bias(weights, vs, K: tl.constexpr, V: tl.constexpr, BIAS: tl.constexpr):
    """Load the bias [1, BV], the row below W [K, V] in memory; zero where there is none."""
    return tl.load(weights + K * V + vs[None, :], mask=(vs[None, :] < V) & (BIAS == 1), other=0.0)


@triton.jit
def store_weights(weights, W, bias, ks, vs, K: tl.constexpr, V: tl.constexpr, BIAS: tl.constexpr):
    """Store W [BK, BV] and, where there is one, the bias [1, BV]."""
    store_rows(weights, ks, K, V, vs, V, W)
    tl.store(weights + K * V + vs[None, :], bias, mask=(vs[None, :] < V) & (BIAS == 1))


@triton.jit
def _forward(
    k, target, rates, initial, norm, g, z, starts, T, rows,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BIAS: tl.constexpr, SIZE: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, NORMED: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Compute g and z [B, T, H, V], and starts [B, H, N + 1, I, V], weights before and after mini-batches.

    Grid (B H). k [B, T, H, K], target [B, T, H, V], rates [B, T, H], initial [B, H, I, V].
    """
    bh = tl.program_id(0).to(tl.int64)
    here = bh // H * T * H + bh % H  # of the mini-batch's first token and the head among all
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    there = vs[None, :] < V
    gamma, beta = load_norm(norm, bh, rows, vs, H, V)
    W = load_rows(initial + bh * (K + BIAS) * V, ks, K, V, vs, V)
    bias = load_bias(initial + bh * (K + BIAS) * V, vs, K, V, BIAS)
    weights = starts + bh * (tl.cdiv(T, SIZE) + 1) * (K + BIAS) * V
    for n in range(0, tl.cdiv(T, SIZE)):
        store_weights(weights, W, bias, ks, vs, K, V, BIAS)
        end = tl.minimum(T - n * SIZE, SIZE)
        k_n = load_rows(k + here * K, i, end, H * K, ks, K)
        target_n = load_rows(target + here * V, i, end, H * V, vs, V)
        z_n = dot(k_n, W, tl.float32) + bias
        if NORMED:
            normalised, factor = normalised_rows(z_n, there, V, EPS)
            slope = gamma * (gamma * normalised + beta - target_n)
            g_n = through_norm(slope, normalised, factor, there, V)
        else:
            g_n = z_n - target_n
        store_rows(g + here * V, i, end, H * V, vs, V, g_n)
        store_rows(z + here * V, i, end, H * V, vs, V, z_n)
        written = g_n * -tl.load(rates + here + i * H, mask=i < end, other=0.0)[:, None]
        W = dot(load_transposed(k + here * K, i, end, H * K, ks, K), written, tl.float32, W)
        if BIAS:
            bias += tl.sum(written, axis=0)[None, :]
        here += SIZE * H
        weights += (K + BIAS) * V
    store_weights(weights, W, bias, ks, vs, K, V, BIAS)


@triton.jit
def _norm_gradients(
    z, target, g, dg, gamma, beta, there, V: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Return gradients of z, of the target, of gamma and of beta, each [C, BV], from dg of the slope g."""
    normalised, factor = normalised_rows(z, there, V, EPS)
    left = gamma * normalised + beta - target
    slope = gamma * left
    dslope = through_norm(dg, normalised, factor, there, V)
    dleft = gamma * dslope
    # of n where it is read: in what is left, and in the Jacobian
    along, dalong = _mean(normalised * slope, V), _mean(normalised * dg, V)
    dn = gamma * dleft - factor * (dg * along + slope * dalong)
    # of the standard deviation, by which both n and g are divided
    dcentred = factor * (dn - normalised * _mean(dg * g + dn * normalised, V))
    dz = tl.where(there, dcentred - _mean(dcentred, V), 0.0)
    return dz, -dleft, dslope * left + dleft * normalised, dleft


@triton.jit
def _backward(
    k, target, rates, norm, g, z, starts, dg, dstarts, dk, dtarget, drates, dinitial, dnorm, T, rows,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BIAS: tl.constexpr, SIZE: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, NORMED: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Compute gradients, in the shapes of `_forward`, dnorm [B, H, 2, V]. Grid (B H)."""
    bh, count = tl.program_id(0).to(tl.int64), tl.cdiv(T, SIZE)
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    there = vs[None, :] < V
    gamma, beta = load_norm(norm, bh, rows, vs, H, V)
    place = (bh * (count + 1) + count) * (K + BIAS) * V
    dW = load_rows(dstarts + place, ks, K, V, vs, V)
    dbias = load_bias(dstarts + place, vs, K, V, BIAS)
    dgamma, dbeta = tl.zeros([1, BV], tl.float32), tl.zeros([1, BV], tl.float32)
    here = (bh // H * T + count * SIZE) * H + bh % H
    for back in range(0, count):
        here -= SIZE * H
        place -= (K + BIAS) * V
        end = tl.minimum(T - (count - 1 - back) * SIZE, SIZE)
        k_n = load_rows(k + here * K, i, end, H * K, ks, K)
        rates_n = tl.load(rates + here + i * H, mask=i < end, other=0.0)
        g_n = load_rows(g + here * V, i, end, H * V, vs, V)
        dwritten = dot(k_n, dW, tl.float32) + dbias  # of -rate g
        tl.store(drates + here + i * H, -tl.sum(g_n * dwritten, axis=1), mask=i < end)
        dg_n = load_rows(dg + here * V, i, end, H * V, vs, V) - rates_n[:, None] * dwritten
        if NORMED:
            dz, dtarget_n, dgamma_n, dbeta_n = _norm_gradients(
                load_rows(z + here * V, i, end, H * V, vs, V),
                load_rows(target + here * V, i, end, H * V, vs, V),
                g_n, dg_n, gamma, beta, there, V, EPS,
            )  # fmt: skip
            dgamma += tl.sum(dgamma_n, axis=0)[None, :]
            dbeta += tl.sum(dbeta_n, axis=0)[None, :]
        else:
            dz, dtarget_n = dg_n, -dg_n
        store_rows(dtarget + here * V, i, end, H * V, vs, V, dtarget_n)
        # g is loaded anew, transposed: a product's result is not transposed into another
        written_t = load_transposed(g + here * V, i, end, H * V, vs, V) * -rates_n[None, :]
        dk_n = tl.trans(dot(dW, written_t, tl.float32))
        dk_n += dot(dz, load_transposed(starts + place, ks, K, V, vs, V), tl.float32)
        store_rows(dk + here * K, i, end, H * K, ks, K, dk_n)
        dW += load_rows(dstarts + place, ks, K, V, vs, V)
        dW = dot(load_transposed(k + here * K, i, end, H * K, ks, K), dz, tl.float32, dW)
        if BIAS:
            dbias += tl.sum(dz, axis=0)[None, :] + load_bias(dstarts + place, vs, K, V, BIAS)
    store_weights(dinitial + bh * (K + BIAS) * V, dW, dbias, ks, vs, K, V, BIAS)
    at = dnorm + bh * 2 * V + vs[None, :]
    tl.store(at, dgamma, mask=there)
    tl.store(at + V, dbeta, mask=there)


@operator("fast_weight_linear")
def forward(
    k: Tensor, target: Tensor, rates: Tensor, initial: Tensor, norm: Tensor, size: int, normed: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return g, the weights before each mini-batch and after the last, and z for `backward`.

    Arguments are those of `triton_writes`.
    """
    k, target, rates, initial, norm = (x.contiguous() for x in (k, target, rates, initial, norm))
    g, starts, z = _unfilled(k, target, initial, size)
    # loads of the next mini-batches do not wait for the weights of this one
    sizes = sizes_of(k, target, initial, size, normed) | {"num_stages": 3}
    rows = len(k) // len(norm)
    _forward[(k.shape[0] * k.shape[2],)](
        k, target, rates, initial, norm, g, z, starts, k.shape[1], rows, **sizes
    )
    return g, starts, z


@operator("fast_weight_linear_backward", differentiable=False)
def backward(
    k: Tensor,
    target: Tensor,
    rates: Tensor,
    norm: Tensor,
    g: Tensor,
    starts: Tensor,
    z: Tensor,
    dg: Tensor,
    dstarts: Tensor,
    size: int,
    normed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of k, target, rates, initial and norm."""
    k, target, rates, norm, dg, dstarts = (x.contiguous() for x in (k, target, rates, norm, dg, dstarts))
    dk, dtarget, drates = map(torch.empty_like, (k, target, rates))
    dinitial, each = torch.empty_like(starts[:, :, 0]), k.new_empty(len(k), *norm.shape[1:])
    sizes = sizes_of(k, target, dinitial, size, normed)
    # two mini-batches' weights and their gradients fit on the chip, of heads that are not wide
    sizes["num_stages"] = 2 if max(k.shape[3], target.shape[3]) <= 64 else 1
    _backward[(k.shape[0] * k.shape[2],)](
        k, target, rates, norm, g, z, starts, dg, dstarts, dk, dtarget, drates, dinitial, each,
        k.shape[1], len(k) // len(norm), **sizes,
    )  # fmt: skip
    return dk, dtarget, drates, dinitial, each.unflatten(0, (len(norm), -1)).sum(dim=1)


def _unfilled(k: Tensor, target: Tensor, initial: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    batch, heads, *shape = initial.shape
    starts = k.new_empty(batch, heads, -(-k.shape[1] // size) + 1, *shape)
    return target.new_empty(target.shape), starts, target.new_empty(target.shape)


def sizes_of(k: Tensor, target: Tensor, initial: Tensor, size: int, normed: bool) -> dict[str, Any]:
    """Return parameters of a launch, of k [B, T, H, K], target [B, T, H, V] and initial [B, H, I, V]."""
    key_dim, value_dim = k.shape[3], target.shape[3]
    return {
        "H": k.shape[2],
        "K": key_dim,
        "V": value_dim,
        "BIAS": initial.shape[2] - key_dim,
        "SIZE": size,
        "C": power_of_two(size),
        "BK": power_of_two(key_dim),
        "BV": power_of_two(value_dim),
        "NORMED": normed,
        "EPS": NORM_EPS,
        # of fewer, registers spill; of eight, Triton 3.6 makes wrong gradients on Hopper for narrower heads
        "num_warps": 8 if min(key_dim, value_dim) > 64 else 4,
        "num_stages": 1,
    }


@forward.register_fake
def _(
    k: Tensor, target: Tensor, rates: Tensor, initial: Tensor, norm: Tensor, size: int, normed: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return _unfilled(k, target, initial, size)


@backward.register_fake
def _(
    k: Tensor, target: Tensor, rates: Tensor, norm: Tensor, g: Tensor, starts: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    first = starts[:, :, 0]
    return (*(x.new_empty(x.shape) for x in (k, target, rates, first, norm)),)  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    k, target, rates, _, norm, ctx.size, ctx.normed = inputs
    ctx.save_for_backward(k, target, rates, norm, *output)
    ctx.mark_non_differentiable(output[2])


def _differentiate(ctx: Any, dg: Tensor, dstarts: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    return *backward(*ctx.saved_tensors, dg, dstarts, ctx.size, ctx.normed), None, None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def triton_writes(
    k: Tensor, target: Tensor, rates: Tensor, initial: Tensor, norm: Tensor | None, size: int
) -> tuple[Tensor, Tensor]:
    """Return each token's gradient by the output, and the weights at the borders of mini-batches.

    Args:
        k: [B, T, H, K].
        target: what the network, with its norm, should return [B, T, H, V].
        rates: [B, T, H], by which a gradient changes the weights.
        initial: [B, H, I, V] with I = K rows, or K + 1 of which the last is the bias.
        norm: weight and bias [H, 2, V] of a layer norm; None is no norm.
        size: tokens of a mini-batch.

    Returns: [B, T, H, V], and [B, H, N + 1, I, V] before each of N mini-batches and after the last, all in
    float32.
    """
    known = k.new_zeros(1, k.shape[2], 2, target.shape[3]) if norm is None else norm[None]
    g, starts, _ = forward(k, target, rates, initial, known, size, norm is not None)
    return g, starts
