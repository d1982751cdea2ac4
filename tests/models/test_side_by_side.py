"""Attention beside a state space in one layer, by hand: Hymba's and Falcon-H1's."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.attention import Attention
from linbench.models.attention_mamba import AttentionMamba
from linbench.models.attention_mamba2 import AttentionMamba2
from linbench.models.mamba2 import Mamba2
from tests.helpers.models import HEADS, Error, Randomise, build_mixer
from tests.helpers.trained_memories import LENGTHS, assert_is_by_hand, drawn, heads, rms_normed, turned

WINDOW = 5


def convolved(x: Tensor, conv: Any) -> Tensor:
    """The short convolution of x with its bias and SiLU."""
    y = sum(F.pad(x, (0, 0, 3 - i, 0))[:, : x.shape[1]] * conv.weight[i] for i in range(4))
    return F.silu(y + conv.bias)


def attended(mixer: Any, x: Tensor) -> Tensor:
    """Return what attention reads of the last tokens [B, T, H V], token by token."""
    keys, values, rows = [], [], []
    for t, (q, k, v) in enumerate(zip(*heads(mixer, x), strict=True)):
        keys, values = [*keys, turned(k, t)][-WINDOW:], [*values, v][-WINDOW:]
        scores = torch.einsum("bhk,sbhk->bhs", turned(q, t), torch.stack(keys)) / k.shape[-1] ** 0.5
        rows.append(torch.einsum("bhs,sbhk->bhk", scores.softmax(-1), torch.stack(values)).flatten(-2))
    return torch.stack(rows, dim=1)


def mamba(mixer: Any, x: Tensor) -> Tensor:
    """Return what Mamba reads [B, T, W] after its gate, without its last map, token by token."""
    u = convolved(x @ mixer.inner.weight.T, mixer.conv.short)
    step = F.softplus(u @ mixer.step.down.weight.T @ mixer.step.up.weight.T + mixer.step.up.bias)
    write, read, A = u @ mixer.write.weight.T, u @ mixer.read.weight.T, -mixer.A_log.exp()
    h, rows = torch.zeros(len(x), *A.shape, dtype=x.dtype), []
    for t in range(x.shape[1]):
        h = (step[:, t, :, None] * A).exp() * h + (step[:, t] * u[:, t])[..., None] * write[:, t, None]
        rows.append((h * read[:, t, None]).sum(dim=-1))
    return (torch.stack(rows, dim=1) + mixer.skip * u) * F.silu(x @ mixer.gate.weight.T)


def mamba2(mixer: Any, x: Tensor) -> Tensor:
    """The output of Mamba-2 with one B and C for all heads, token by token."""
    joined = convolved(x @ mixer.project.linear.weight.T, mixer.project.conv)
    C, B, u = joined.split(mixer.project.widths, dim=-1)
    u = u.unflatten(-1, (HEADS, -1))
    step = F.softplus(x @ mixer.decay.project.weight.T + mixer.decay.dt_bias)
    S, rows = torch.zeros(len(x), HEADS, C.shape[-1], u.shape[-1], dtype=x.dtype), []
    for t in range(x.shape[1]):
        kept = (-mixer.decay.A_log.exp() * step[:, t]).exp()[..., None, None]
        S = kept * S + torch.einsum("bk,bhv->bhkv", B[:, t], step[:, t, :, None] * u[:, t])
        rows.append(torch.einsum("bk,bhkv->bhv", C[:, t], S))
    o = (torch.stack(rows, dim=1) + mixer.skip[:, None] * u).flatten(-2)
    gated = o * F.silu(x @ mixer.readout.gate.weight.T)
    return (rms_normed(gated) * mixer.readout.norm.weight) @ mixer.readout.linear.weight.T


@LENGTHS
def test_hymbas_layer_is_its_equation(generator: torch.Generator, randomise: Randomise, length: int) -> None:
    mixer = randomise(build_mixer(AttentionMamba, window=WINDOW))
    x = drawn(generator, length).requires_grad_()
    first = rms_normed(attended(mixer, x)) * mixer.attention_norm.weight
    other = rms_normed(mamba(mixer.beside, x)) * mixer.beside_norm.weight
    assert_is_by_hand(mixer, (first + other) / 2 @ mixer.readout.linear.weight.T, x, generator)


@LENGTHS
def test_falcons_layer_is_its_equation(generator: torch.Generator, randomise: Randomise, length: int) -> None:
    mixer = randomise(build_mixer(AttentionMamba2, window=WINDOW))
    x = drawn(generator, length).requires_grad_()
    expected = attended(mixer, x) @ mixer.readout.linear.weight.T + mamba2(mixer.beside, x)
    assert_is_by_hand(mixer, expected, x, generator)


@torch.no_grad()
def test_falcons_layer_is_the_sum_of_two_layers(
    generator: torch.Generator, randomise: Randomise, relative_error: Error
) -> None:
    for settings in ({"window": WINDOW, "head_dim": 6}, AttentionMamba2.controlled or {}):
        mixer, x = randomise(build_mixer(AttentionMamba2, **settings)), drawn(generator, 40)
        own = Attention.Settings.model_fields
        alone = build_mixer(Attention, **{name: settings[name] for name in settings if name in own})
        weights = mixer.state_dict()
        alone.load_state_dict({name: x for name, x in weights.items() if not name.startswith("beside.")})
        beside = build_mixer(Mamba2, **mixer.beside.settings.model_dump())
        beside.load_state_dict(mixer.beside.state_dict())
        assert relative_error(mixer(x).y, alone(x).y + beside(x).y) < 1e-12


@torch.no_grad()
def test_without_one_branch_the_other_is_left(
    generator: torch.Generator, randomise: Randomise, relative_error: Error
) -> None:
    mixer, x = randomise(build_mixer(AttentionMamba)), drawn(generator, 40)
    mixer.beside_norm.weight.zero_()
    alone = build_mixer(Attention, output_norm="rms_all")
    weights = {name: x for name, x in mixer.state_dict().items() if not name.startswith("beside")}
    norm = weights.pop("attention_norm.weight")
    alone.load_state_dict(weights | {"readout.norm.weight": norm / 2})
    assert relative_error(mixer(x).y, alone(x).y) < 1e-12
