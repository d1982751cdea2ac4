"""Decayed sums, computed by hand."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.base import LayerInfo, Mixer
from tests.helpers.models import HEADS, B, D, build_mixer

T = 37
PLAIN = {
    "conv": 0,
    "qk_norm": "none",
    "feature_map": "identity",
    "output_norm": "none",
    "output_gate": "none",
    "positions": "none",
}
PLAIN |= {"expand_k": 1.0, "expand_v": 1.0}


def build(cls: type[Mixer], *, index: int = 0, count: int = 2, **settings: Any) -> Mixer:
    return build_mixer(cls, LayerInfo(index, count, D), **settings)


def in_heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1))


def projected(mixer: Mixer, x: Tensor, *widths: int) -> list[Tensor]:
    """x times the one matrix that makes q, k and v, in heads."""
    return [in_heads(part) for part in (x @ mixer.project.linear.weight.T).split(widths, dim=-1)]


def looped(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor | None = None) -> Tensor:
    """S_t = (rows_t columns_t^T) * S_{t-1} + k_t v_t^T, o_t = S_t^T q_t; rows broadcastable to [B, T, H, K],
    columns to [B, T, H, V]."""
    rows = rows.expand_as(k)
    columns = torch.ones_like(v) if columns is None else columns.expand_as(v)
    state, outputs = torch.zeros(B, k.shape[2], k.shape[3], v.shape[3], dtype=torch.float64), []
    for t in range(q.shape[1]):
        state = (
            rows[:, t, :, :, None] * columns[:, t, :, None, :] * state
            + k[:, t, :, :, None] * v[:, t, :, None, :]
        )
        outputs.append((state * q[:, t, :, :, None]).sum(dim=2))
    return torch.stack(outputs, dim=1)


def normed(o: Tensor, weight: Tensor) -> Tensor:
    return o / (o.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * weight


def gated(mixer: Mixer, o: Tensor, x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """The norm of o per head or over all, the gate, and the way back to the stream."""
    o = normed(o.flatten(-2) if mixer.readout.joined_heads else o, mixer.readout.norm.weight)
    gate = activation(x @ mixer.readout.gate.weight.T)
    return (o.flatten(2) * gate) @ mixer.readout.linear.weight.T


def turned(x: Tensor) -> Tensor:
    """x [B, T, H, K] as complex numbers, of its first and its second half, turned by their places."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None, None] * 10_000.0 ** (
        -torch.arange(half, dtype=torch.float64) / half
    )
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([z.real, z.imag], dim=-1)


def convolved(mixer: Mixer, x: Tensor, *widths: int) -> tuple[Tensor, ...]:
    """x times the one matrix, and a filter of four for every channel."""
    u = x @ mixer.project.linear.weight.T
    y = sum(F.pad(u, (0, 0, 3 - i, 0))[:, :T] * mixer.project.conv.weight[i] for i in range(4))
    return (y if mixer.project.conv.bias is None else y + mixer.project.conv.bias).split(widths, dim=-1)
