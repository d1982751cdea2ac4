"""S4D: its recurrence token by token, its filter, and how it starts."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.diagonal_ssm import CHUNK
from linbench.models.s4d import S4D
from tests.helpers.decayed_sums import normed
from tests.helpers.models import B, D, Error, Randomise, build_mixer
from tests.helpers.rwkv import convolved

T = 2 * CHUNK + 9
MODES = tuple(f"memory.{name}" for name in ("log_step", "log_decay", "frequency", "read"))


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def modes(mixer: S4D) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rest of a mode after a token, what a token writes, and C, each [D, M]."""
    memory = mixer.memory
    rate = torch.complex(-memory.log_decay.exp(), memory.frequency)
    left = (memory.log_step.exp()[:, None] * rate).exp()
    return left, (left - 1) / rate, torch.complex(*memory.read.unbind(-1))


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"states": 4, "modes": "inv"},
        {"skip": False, "output": "linear", "conv": 4},
        {"output_norm": "rms"},
    ],
    ids=str,
)
def test_it_is_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, settings: dict[str, Any]
) -> None:
    mixer = randomise(build_mixer(S4D, **settings))
    left, write, read = modes(mixer)
    u = convolved(x, mixer.conv.short.weight) if settings.get("conv") else x
    h, outputs = torch.zeros(B, *left.shape, dtype=torch.complex128), []
    for t in range(T):
        h = left * h + write * u[:, t, :, None]
        outputs.append(2 * (read * h).real.sum(dim=-1))
    o = torch.stack(outputs, dim=1)
    o = o + mixer.skip * u if settings.get("skip", True) else o
    o = normed(o, mixer.norm.weight) if mixer.norm is not None else o
    if settings.get("output") == "linear":
        y = o @ mixer.linear.weight.T
    else:
        value, gate = (F.gelu(o) @ mixer.linear.weight.T + mixer.linear.bias).chunk(2, dim=-1)
        y = value * torch.sigmoid(gate)
    found, state, _ = mixer(x)
    assert relative_error(found, y) < 1e-10
    assert relative_error(state.memory, torch.view_as_real(h).flatten(-2)) < 1e-10


@torch.no_grad()
def test_it_is_a_convolution_with_its_answer_to_one_impulse(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    """The convolution is computed with Fourier transforms of twice the length, like in the source."""
    mixer = randomise(build_mixer(S4D))
    impulse = torch.zeros(1, T, D, dtype=torch.float64)
    impulse[:, 0] = 1
    taps, _ = mixer.memory(impulse, None)
    o, _ = mixer.memory(x, None)
    convolved = torch.fft.irfft(
        torch.fft.rfft(x, 2 * T, dim=1) * torch.fft.rfft(taps, 2 * T, dim=1), 2 * T, dim=1
    )[:, :T]
    assert relative_error(o, convolved) < 1e-10


@torch.no_grad()
def test_it_is_the_same_at_all_times(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build_mixer(S4D))
    later = F.pad(x, (0, 0, 5, 0))
    assert relative_error(mixer.memory(later, None)[0][:, 5:], mixer.memory(x, None)[0]) < 1e-10


@torch.no_grad()
def test_in_float32_its_phases_keep_their_digits(relative_error: Error, generator: torch.Generator) -> None:
    """The fastest mode turns by 9.7 in a token."""
    mixer = build_mixer(S4D)
    mixer.memory.log_step.fill_(math.log(0.1))
    x = torch.randn(1, 4000, D, dtype=torch.float64, generator=generator)
    exact = mixer(x).state.memory
    assert relative_error(mixer.float()(x.float()).state.memory, exact) < 1e-4


@pytest.mark.parametrize("step", [1e-5, 1e-3, 0.02, 0.1])
def test_in_float32_what_a_step_writes_keeps_its_digits(
    relative_error: Error, generator: torch.Generator, step: float
) -> None:
    """And so do gradients, where (e^z - 1) / l is a difference of nearly the same."""
    x = torch.randn(2, 200, D, dtype=torch.float64, generator=generator)
    found = []
    for dtype in (torch.float64, torch.float32):
        memory = build_mixer(S4D).memory.to(dtype)
        memory.log_step.data.fill_(math.log(step))
        y, _ = memory(x.to(dtype), None)
        found.append([y, *torch.autograd.grad((y * y.detach().sign()).sum(), list(memory.parameters()))])
    for exact, given in zip(*found, strict=True):
        assert relative_error(given, exact) < 2e-4


@torch.no_grad()
def test_it_starts_as_published() -> None:
    lin, inv = build_mixer(S4D), build_mixer(S4D, modes="inv", states=8)
    torch.testing.assert_close(lin.memory.log_decay.exp(), torch.full((D, 32), 0.5, dtype=torch.float64))
    torch.testing.assert_close(
        lin.memory.frequency,
        (math.pi * torch.arange(32, dtype=torch.float64)).expand(D, 32),
        rtol=1e-6,
        atol=0,
    )
    wanted = torch.tensor([8 / math.pi * (8 / (2 * n + 1) - 1) for n in range(4)], dtype=torch.float64)
    torch.testing.assert_close(inv.memory.frequency, wanted.expand(D, 4), rtol=1e-6, atol=0)
    wide = build_mixer(S4D, LayerInfo(0, 1, 512))
    assert -math.log(1000) <= wide.memory.log_step.min() < wide.memory.log_step.max() <= -math.log(10) + 1e-6
    assert wide.memory.log_step.median().exp() == pytest.approx(0.01, rel=0.25), "log-uniform"
    assert (wide.skip.mean().item(), wide.skip.std().item()) == pytest.approx((0, 1), abs=0.15), (
        "standard normal"
    )
    assert lin.memory.read.square().sum(dim=-1).mean() == pytest.approx(1, rel=0.15), (
        "a complex standard normal"
    )
    assert not lin.linear.weight.any()
    assert not lin.linear.bias.any()


def test_only_maps_decay() -> None:
    assert build_mixer(S4D).parameter_rules() == dict.fromkeys((*MODES, "skip"), Rule(decay=False))
    assert build_mixer(S4D, skip=False).parameter_rules().keys() == set(MODES)
