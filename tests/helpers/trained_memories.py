"""Layers whose memory is a network, by hand: what all their loops need."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.helpers.models import HEADS, B, D

LENGTHS = pytest.mark.parametrize(
    "length", [1, 65, *(pytest.param(length, marks=pytest.mark.slow) for length in (63, 100))]
)


def drawn(generator: torch.Generator, length: int) -> Tensor:
    return torch.randn(B, length, D, dtype=torch.float64, generator=generator)


def turned(x: Tensor, place: int) -> Tensor:
    """Rotary positions of x [..., K], 2104.09864."""
    half = x.shape[-1] // 2
    angle = place * 10_000 ** (-torch.arange(half, dtype=x.dtype) / half)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)


def layer_normed(x: Tensor, eps: float) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + eps).sqrt()


def rms_normed(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def recalled(x: Tensor, M: list[Tensor], w: dict[str, Tensor]) -> Tensor:
    """f(x; M) of Titans for x [B, ..., H, K] and one or two maps, with the norm in a layer's parameters w."""
    z = torch.einsum("b...hk,bhkf->b...hf", x, M[0])
    if len(M) > 1:
        z = torch.einsum("b...hf,bhfv->b...hv", F.gelu(z, approximate="tanh"), M[1])
    return x + w["inner_norm.weight"] * layer_normed(z, 1e-6) + w["inner_norm.bias"]


def unit(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def heads(mixer: Any, x: Tensor) -> tuple[Tensor, ...]:
    """q, k and v [B, H, K] of every token [T], without a convolution."""
    parts = (x @ mixer.project.linear.weight.T).split(D, dim=-1)
    return tuple(part.unflatten(-1, (HEADS, -1)).transpose(0, 1) for part in parts)


def assert_is_by_hand(mixer: Any, expected: Tensor, x: Tensor, generator: torch.Generator) -> None:
    """Outputs and gradients, from the start and from an initial state."""
    wanted = [x, *mixer.parameters()]
    weight = torch.randn(expected.shape, dtype=torch.float64, generator=generator)
    by_loop = torch.autograd.grad((expected * weight).sum(), wanted, materialize_grads=True)
    for y in (mixer(x).y, mixer(x, mixer.init_state(B, capacity=x.shape[1])).y):
        assert (y - expected).abs().max() <= 1e-11 * expected.abs().max()
        found = torch.autograd.grad((y * weight).sum(), wanted, materialize_grads=True)
        for one, other in zip(found, by_loop, strict=True):
            assert (one - other).abs().max() <= 1e-9 * max(1.0, float(other.abs().max()))
