"""Hyena: its equation token by token, its filter, and its cache."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.long_convolution import ImplicitFilter
from linbench.models.hyena import Hyena
from tests.helpers.decayed_sums import normed
from tests.helpers.models import B, D, Error, Randomise, build_mixer

LENGTHS = (1, 2, 63, 65, 100)
SMALL: dict[str, Any] = {"length": 40, "bands": 2, "hidden": 6, "inner": 1, "frequency": 2.0}


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, 100, D, dtype=torch.float64, generator=generator)


def hidden(of: ImplicitFilter, age: int) -> Tensor:
    """Return what the network's last map reads at an age."""
    time, turn = age / (of.length - 1), 2 * math.pi * age / of.length
    bands = [1e-4 + (of.bands - 1 - 1e-4) * i / max(of.bands - 1, 1) for i in range(of.bands)]
    features = [time, *(math.cos(f * turn) for f in bands), *(-math.sin(f * turn) for f in bands)]
    x = torch.tensor(features, dtype=torch.float64)
    for each in of.maps:
        x = torch.sin(of.frequency * (each.weight @ x + each.bias))
    return x


def taps(of: ImplicitFilter, age: int) -> Tensor:
    """Return the taps of one age [D], as the equation has them."""
    channel = torch.arange(D, dtype=torch.float64) / (D - 1)
    rates = math.log(100) * (1 / 1.5 + (1 / 0.3 - 1 / 1.5) * channel)
    return of.last.weight @ hidden(of, age) * torch.exp(-rates * age / (of.length - 1))


def by_hand(mixer: Hyena, x: Tensor) -> Tensor:
    """Return y of a whole sequence."""
    settings, kernel = mixer.settings, mixer.settings.conv
    projected = x @ mixer.project.weight.T + mixer.project.bias
    if mixer.conv.short is not None:
        padded, short = F.pad(projected, (0, 0, kernel - 1, 0)), mixer.conv.short
        projected = sum(short.weight[i] * padded[:, i : i + x.shape[1]] for i in range(kernel))
        projected = projected if short.bias is None else projected + short.bias
        projected = F.silu(projected) if settings.conv_activation == "silu" else projected
    x1, x2, v = projected.chunk(3, dim=-1)
    h = [taps(mixer.filter, age) for age in range(x.shape[1])]
    z = x1 * v
    o = torch.stack(
        [sum(h[t - s] * z[:, s] for s in range(t + 1)) for t in range(x.shape[1])],  # type: ignore[misc]
        dim=1,
    )
    o = x2 * (o if mixer.skip is None else o + mixer.skip * z)
    o = o if mixer.norm is None else normed(o, mixer.norm.weight)
    return o @ mixer.linear.weight.T + mixer.linear.bias


@pytest.mark.parametrize("length", LENGTHS)
def test_it_is_its_equation(x: Tensor, randomise: Randomise, relative_error: Error, length: int) -> None:
    """Outputs and gradients, also beyond the length of its time."""
    mixer, x = randomise(build_mixer(Hyena, **SMALL)), x[:, :length].requires_grad_()
    inputs = (x, *mixer.parameters())
    y, found = by_hand(mixer, x), mixer(x).y
    assert relative_error(found, y) < 1e-10
    of_y, of_found = (torch.autograd.grad(each.sin().sum(), inputs) for each in (y, found))
    for one, other in zip(of_found, of_y, strict=True):
        assert relative_error(one, other) < 1e-8


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"conv": 0}, dict(Hyena.controlled or {})], ids=str)
def test_its_settings_are_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, settings: dict[str, Any]
) -> None:
    mixer, x = randomise(build_mixer(Hyena, **settings)), x[:, :20]
    assert relative_error(mixer(x).y, by_hand(mixer, x)) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 2, 30])
def test_the_cache_holds_products_of_the_first_gate_and_values(
    x: Tensor, randomise: Randomise, relative_error: Error, count: int
) -> None:
    """Rows of which one has seen more tokens than the other."""
    mixer = randomise(build_mixer(Hyena, conv=0))
    x1, _, v = mixer.project(x).chunk(3, dim=-1)
    state = mixer(x[:, :50], mixer.init_state(B, capacity=90)).state
    assert relative_error(state.values[:, :50], (x1 * v)[:, :50]) < 1e-12
    assert not state.values[:, 50:].any()
    fewer = mixer(x[1:, :7], mixer.init_state(1, capacity=90)).state
    both = type(state)(
        torch.cat([state.values[:1], fewer.values]), torch.cat([state.seen[:1], fewer.seen]), None
    )
    for way in (mixer, mixer.decode):
        later = torch.stack([x[0, 50 : 50 + count], x[1, 7 : 7 + count]])
        y = way(later, type(both)(both.values.clone(), both.seen, None)).y
        whole = mixer(x).y
        assert relative_error(y, torch.stack([whole[0, 50 : 50 + count], whole[1, 7 : 7 + count]])) < 1e-10


@torch.no_grad()
def test_decoding_writes_into_the_cache(x: Tensor) -> None:
    mixer = build_mixer(Hyena)
    state = mixer(x[:, :5], mixer.init_state(B, capacity=9)).state
    after = mixer.decode(x[:, 5:6], state).state
    assert after.values.data_ptr() == state.values.data_ptr()
    assert after.seen.tolist() == [6] * B


@torch.no_grad()
def test_it_starts_as_published() -> None:
    mixer = build_mixer(Hyena, LayerInfo(0, 1, 256))
    assert mixer.filter.frequency.unique().item() == 1
    assert [tuple(each.weight.shape) for each in mixer.filter.maps] == [(64, 3), (64, 64), (64, 64)]
    assert mixer.filter.last.weight.shape == (256, 64)
    assert mixer.skip.std().item() == pytest.approx(1, rel=0.15)
    rules = mixer.parameter_rules()
    free = {name for name, _ in mixer.named_parameters() if name.startswith("filter.")} | {"skip"}
    assert rules == dict.fromkeys(free, Rule(decay=False))
    left = mixer.filter(512, torch.float64)[:, -1] / (mixer.filter.last.weight @ hidden(mixer.filter, 511))
    torch.testing.assert_close(
        left[[0, -1]].log(), -math.log(100) / torch.tensor([1.5, 0.3], dtype=torch.float64)
    )
