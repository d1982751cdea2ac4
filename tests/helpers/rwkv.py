"""Parts of RWKV, computed by hand."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.base import LayerInfo, Mixer
from tests.helpers.models import HEADS, B, D, build_mixer

T = 40
K = D // HEADS
LAYER = LayerInfo(1, 3, D)


def build(cls: type[Mixer], layer: LayerInfo = LAYER, **settings: Any) -> Mixer:
    return build_mixer(cls, layer, **settings)


def controlled(cls: type[Mixer], **settings: Any) -> Mixer:
    return build(cls, **{**cls.controlled, **settings})


def shifted(x: Tensor) -> Tensor:
    return torch.stack([x[:, t - 1] if t else torch.zeros_like(x[:, 0]) for t in range(x.shape[1])], dim=1)


def mixed(mixer: Mixer, x: Tensor, letters: str) -> dict[str, Tensor]:
    """Return the inputs of the maps, by the equation of the token shift."""
    mix = dict(zip(mixer.shift.names, mixer.shift.mix, strict=True))
    assert set(mix) == set(letters)
    return {letter: (1 - mix[letter]) * x + mix[letter] * shifted(x) for letter in letters}


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1))


def group_norm(o: Tensor, mixer: Mixer) -> Tensor:
    """Apply the group norm as published: a division by 8, then eps 1e-5."""
    norm = mixer.readout.norm
    y = F.group_norm(o.reshape(-1, D) / 8, HEADS, norm.weight.flatten(), norm.bias.flatten(), eps=1e-5)
    return y.view(*o.shape[:2], D)


def eagle(r: Tensor, k: Tensor, v: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """r, k, v, w [B, T, H, K], u [H, K]: token by token, read and then written."""
    state, outputs = r.new_zeros(B, HEADS, K, K), []
    for t in range(r.shape[1]):
        written = k[:, t, :, :, None] * v[:, t, :, None, :]
        outputs.append(((state + u[..., None] * written) * r[:, t, :, :, None]).sum(dim=2))
        state = w[:, t, :, :, None] * state + written
    return torch.stack(outputs, dim=1)


def averages(k: Tensor, v: Tensor, w: Tensor, u: Tensor) -> Tensor:
    """RWKV-4: every sum over the past anew, its terms over the largest."""
    outputs = []
    for t in range(k.shape[1]):
        distance = torch.arange(t - 1, -1, -1, dtype=torch.float64)[:, None]
        exponents = torch.cat([k[:, :t] - distance * w, u + k[:, t : t + 1]], dim=1)
        outputs.append((exponents.softmax(dim=1) * v[:, : t + 1]).sum(dim=1))
    return torch.stack(outputs, dim=1)


def convolved(x: Tensor, weight: Tensor) -> Tensor:
    """Each channel with its own filter [kernel, D], the last of which is for the token itself, then SiLU."""
    late = F.pad(x.mT, (weight.shape[0] - 1, 0))
    return F.silu(F.conv1d(late, weight.mT[:, None], groups=D)).mT
