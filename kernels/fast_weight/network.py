"""The small network on many tokens at once: its values, and the gradients of its loss."""

from collections.abc import Callable
from math import pi
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.fast_weight.call import NORM_EPS, Call
from linbench.kernels.fast_weight.description import Maps, Network

Apply = Callable[[int, Tensor], Tensor]
"""A function of a map's index and its inputs [B, H, L, I] that returns its outputs [B, H, L, O]."""

_GELU_SLOPE, _GELU_CUBE = (2 / pi) ** 0.5, 0.044715  # of gelu by tanh, arXiv:1606.08415


class _Run(NamedTuple):
    """inputs: of every map. outputs: of every map, before what follows it."""

    inputs: Maps
    outputs: Maps


def _run(network: Network, apply: Apply, x: Tensor) -> _Run:
    def with_one(x: Tensor) -> Tensor:
        return F.pad(x, (0, 1), value=1.0) if network.bias else x

    x = with_one(x)
    a = apply(0, x)
    if network.kind == "linear":
        return _Run((x,), (a,))
    if network.kind == "mlp":
        hidden = with_one(F.gelu(a, approximate="tanh"))
        return _Run((x, hidden), (a, apply(1, hidden)))
    up = apply(1, x)
    hidden = with_one(F.silu(a) * up)
    return _Run((x, x, hidden), (a, up, apply(2, hidden)))


def _normalised(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return z with mean zero and variance one, and by what it was multiplied."""
    centred = z - z.mean(dim=-1, keepdim=True)
    factor = (centred.square().mean(dim=-1, keepdim=True) + NORM_EPS).rsqrt()
    return centred * factor, factor


def values(network: Network, norm: tuple[Tensor, Tensor] | None, apply: Apply, x: Tensor) -> Tensor:
    """Return the network's values [B, H, L, V] for x [B, H, L, K]."""
    y = _run(network, apply, x).outputs[-1]
    if norm is not None:
        weight, bias = (each[:, None] for each in norm)
        y = weight * _normalised(y)[0] + bias
    return x + y if network.residual else y


def gradients(call: Call, weights: Maps, k: Tensor, v: Tensor) -> tuple[Maps, Maps]:
    """Return the inputs of all maps for keys [B, H, L, K], and d loss / d output of all maps for values.

    The gradient of a map's matrix is their outer product.
    """
    run = _run(call.network, lambda m, x: x @ weights[m], k)
    slope = _slope_of_output(call, run.outputs[-1], k, v)
    if call.network.kind == "linear":
        return run.inputs, (slope,)
    into_hidden = slope @ weights[-1].mT
    if call.network.bias:
        into_hidden = into_hidden[..., :-1]
    a = run.outputs[0]
    if call.network.kind == "mlp":
        return run.inputs, (into_hidden * _gelu_slope(a), slope)
    gate = a.sigmoid()
    silu_slope = gate * (1 + a * (1 - gate))
    return run.inputs, (into_hidden * run.outputs[1] * silu_slope, into_hidden * gate * a, slope)


def _slope_of_output(call: Call, z: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return d loss / dz for the last map's output z."""

    def slope_of(y: Tensor) -> Tensor:
        if call.network.loss == "product":
            return -v
        return y + k - v if call.network.residual else y - v

    if call.norm is None:
        return slope_of(z)
    weight, bias = (each[:, None] for each in call.norm)
    normalised, factor = _normalised(z)
    slope = weight * slope_of(weight * normalised + bias)
    mean = slope.mean(dim=-1, keepdim=True)
    along = (normalised * slope).mean(dim=-1, keepdim=True)
    return factor * (slope - mean - normalised * along)


def _gelu_slope(x: Tensor) -> Tensor:
    t = torch.tanh(_GELU_SLOPE * (x + _GELU_CUBE * x.pow(3)))
    inner = _GELU_SLOPE * (1 + 3 * _GELU_CUBE * x.square())
    slope: Tensor = 0.5 * (1 + t) + 0.5 * x * (1 - t.square()) * inner
    return slope
