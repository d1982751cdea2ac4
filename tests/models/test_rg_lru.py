"""RG-LRU: its equation token by token, the average it is with constant gates, and how it starts."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import LayerInfo, Rule
from linbench.models.rg_lru import RGLRU
from tests.helpers.decayed_sums import normed
from tests.helpers.models import B, D, Error, Randomise, build_mixer

T = 37


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def gate(part: Any, u: Tensor) -> Tensor:
    return torch.sigmoid(u @ torch.block_diag(*part.weight) + part.bias)


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"blocks": 4, "conv_activation": "silu", "conv_bias": False, "output_norm": "rms"},
        {"conv": 0, "expand": 1.5, "blocks": 1, "output_gate": "none"},
    ],
    ids=str,
)
def test_it_is_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, settings: dict[str, Any]
) -> None:
    mixer = randomise(build_mixer(RGLRU, **settings))
    u = x @ mixer.inner.weight.T
    if mixer.conv.short is not None:
        taps, bias = mixer.conv.short.weight, mixer.conv.short.bias
        u = sum(F.pad(u, (0, 0, 3 - i, 0))[:, :T] * taps[i] for i in range(4))
        u = u if bias is None else u + bias
        u = F.silu(u) if settings.get("conv_activation") == "silu" else u
    r, i = gate(mixer.recurrence, u), gate(mixer.input, u)
    a = torch.sigmoid(mixer.decay) ** (8 * r)
    h, outputs = torch.zeros(B, mixer.width, dtype=torch.float64), []
    for t in range(T):
        h = a[:, t] * h + (1 - a[:, t] ** 2).sqrt() * i[:, t] * u[:, t]
        outputs.append(h)
    o = torch.stack(outputs, dim=1)
    o = o if mixer.norm is None else normed(o, mixer.norm.weight)
    o = o if mixer.gate is None else o * F.gelu(x @ mixer.gate.weight.T)
    y, state, _ = mixer(x)
    assert relative_error(y, o @ mixer.linear.weight.T) < 1e-10
    assert relative_error(state.memory[:, 0], h) < 1e-10


@torch.no_grad()
def test_with_constant_gates_it_is_an_average_that_keeps_the_size_of_noise(relative_error: Error) -> None:
    """An exponential moving average has 1 - a, where this has the root of 1 - a^2."""
    mixer = build_mixer(RGLRU, forget_bias=2)
    for part in (mixer.recurrence, mixer.input):
        part.weight.zero_()
    mixer.input.bias.fill_(50)  # open
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(1, 4000, D, dtype=torch.float64, generator=generator)
    a = torch.sigmoid(torch.tensor(2.0, dtype=torch.float64))
    average, averages = torch.zeros(1, D, dtype=torch.float64), []
    for token in u.unbind(dim=1):
        average = a * average + (1 - a) * token
        averages.append(average)
    h, _ = mixer.recur(u, torch.zeros(1, 1, D, dtype=torch.float64))
    assert relative_error(h, torch.stack(averages, dim=1) * (1 - a**2).sqrt() / (1 - a)) < 1e-6
    assert h.std().item() == pytest.approx(1, abs=0.03)


def test_gradients_are_finite_where_all_is_kept(x: Tensor) -> None:
    """There the root of zero has no derivative."""
    mixer = build_mixer(RGLRU, silent=False).float()
    mixer.recurrence.bias.data.fill_(-200)
    mixer(x.float()).y.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters())


@torch.no_grad()
def test_it_starts_as_published() -> None:
    mixer = build_mixer(RGLRU, LayerInfo(0, 1, 1024), strata=True)
    size = torch.sigmoid(mixer.decay)
    assert 0.9 <= size.min() < 0.901
    assert 0.998 < size.max() <= 0.9991
    assert size.square().mean().item() == pytest.approx((0.81 + 0.999**2) / 2, abs=1e-4)
    assert mixer.recurrence.weight.std().item() == pytest.approx(512**-0.5, rel=0.01)
    assert not mixer.recurrence.bias.any()
    assert mixer.parameter_rules() == {"decay": Rule(decay=False)}


def test_blocks_that_do_not_divide_are_refused() -> None:
    with pytest.raises(UserError, match=r"model\.blocks = 3 does not divide the 16 channels"):
        build_mixer(RGLRU, blocks=3)
