"""GAU by hand, from its weights."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.backbone import Backbone, BackboneSettings, Layer
from linbench.models.gau import GAU
from tests.helpers.cells import plan
from tests.helpers.models import B, D, Error, Randomise, build_mixer

LENGTHS = pytest.mark.parametrize("length", [1, 63, 65, 100])
FORMS: dict[str, dict[str, Any]] = {
    "published": {},
    "small": {"key_dim": 6, "expand": 1.5, "window": 40},
    "softmax": {"weights": "softmax", "positions": "none"},
    "controlled": dict(GAU.controlled or {}),
}
each_form = pytest.mark.parametrize("form", FORMS)


def turned(x: Tensor, position: int) -> Tensor:
    half = x.shape[-1] // 2
    angles = position * 10_000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)


def by_hand(mixer: Any, x: Tensor) -> Tensor:
    """The layer token by token."""
    s, weights = mixer.settings, dict(mixer.named_parameters())
    read = x
    if s.conv:
        padded = F.pad(x, (0, 0, 3, 0))
        read = F.silu(
            sum(weights["project.short.weight"][i] * padded[:, i : i + x.shape[1]] for i in range(4))
        )
    z, v = (F.silu(read @ weights[f"project.{name}.weight"].T) for name in ("z", "v"))
    q, k = (weights["project.scales"][i] * z + weights["project.shifts"][i] for i in range(2))
    if s.positions == "rope":
        q, k = (torch.stack([turned(each[:, t], t) for t in range(x.shape[1])], dim=1) for each in (q, k))
    rows = []
    for t in range(x.shape[1]):
        start = 0 if s.window is None else max(0, t + 1 - s.window)
        scores = (k[:, start : t + 1] @ q[:, t, :, None])[..., 0] / math.sqrt(s.key_dim)
        if s.weights == "softmax":
            weight = scores.softmax(dim=1)
        else:
            weight = scores.clamp(min=0) ** 2 / scores.shape[1]
        o = (weight[..., None] * v[:, start : t + 1]).sum(dim=1)
        if s.output_norm == "rms":
            o = o / (o.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * weights["readout.norm.weight"]
        if s.output_gate == "swish":
            o = o * F.silu(x[:, t] @ weights["readout.gate.weight"].T)
        rows.append(o @ weights["readout.linear.weight"].T)
    return torch.stack(rows, dim=1)


def drawn(generator: torch.Generator, length: int) -> Tensor:
    return torch.randn(B, length, D, dtype=torch.float64, generator=generator)


@each_form
@LENGTHS
def test_outputs_and_gradients_are_those_of_the_loop(
    generator: torch.Generator, randomise: Randomise, form: str, length: int
) -> None:
    mixer = randomise(build_mixer(GAU, **FORMS[form]))
    x = drawn(generator, length).requires_grad_()
    wanted = [x, *mixer.parameters()]
    expected = by_hand(mixer, x)  # may be zero at a single token
    weight = torch.randn(expected.shape, dtype=torch.float64, generator=generator)
    by_loop = torch.autograd.grad((expected * weight).sum(), wanted)
    for y in (mixer(x).y, mixer(x, mixer.init_state(B, capacity=length)).y):
        assert (y - expected).abs().max() < 1e-12
        found = torch.autograd.grad((y * weight).sum(), wanted)
        for one, other in zip(found, by_loop, strict=True):
            assert (one - other).abs().max() <= 1e-10 * max(1.0, float(other.abs().max()))


@each_form
@torch.no_grad()
def test_tokens_one_by_one_are_those_of_the_loop(
    generator: torch.Generator, randomise: Randomise, relative_error: Error, form: str
) -> None:
    mixer, x = randomise(build_mixer(GAU, **FORMS[form])), drawn(generator, 66)
    y, state, _ = mixer.prefill(x[:, :50], capacity=66)
    parts = [y]
    for token in x[:, 50:].split(1, dim=1):
        y, state, _ = mixer.decode(token, state)
        parts.append(y)
    assert relative_error(torch.cat(parts, dim=1), by_hand(mixer, x)) < 1e-12


def test_it_replaces_the_channel_mixer_as_published() -> None:
    io = plan("mqar/quick", ["attention"], device="cpu")[0].task.io
    layers = [Layer(GAU, GAU.Settings())] * 2
    model = Backbone(BackboneSettings(channel_mixer="own"), layers, io, seed=0)
    assert not len(model.channel_mixers)
    rules = model.parameter_rules()
    assert rules["mixers.0.project.scales"].decay is False
    assert rules["mixers.0.project.shifts"].decay is False


@torch.no_grad()
def test_a_key_that_does_not_match_weighs_nothing(generator: torch.Generator, randomise: Randomise) -> None:
    mixer = randomise(build_mixer(GAU, positions="none"))
    mixer.project.scales.fill_(1.0)
    mixer.project.shifts.copy_(
        torch.tensor([[1.0], [-1.0]]).expand(2, 128)
    )  # z + 1 and z - 1, z in (-.28, 1)
    mixer.project.z.weight.mul_(0.01)
    assert not mixer(drawn(generator, 5)).y.any()
