"""LRU and S5: complex recurrences token by token, and how their modes start."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.hippo import hippo_modes
from linbench.models.lru import LRU
from linbench.models.s5 import S5
from tests.helpers.models import B, D, Error, Randomise, build_mixer

T = 37


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def lru(memory: Any) -> tuple[Tensor, Tensor, float]:
    """Return l [M], what a token writes [M, D] and the factor of what is read."""
    step = (-memory.log_decay.exp() + 1j * memory.log_angle.exp()).exp()
    return step, memory.log_gamma.exp()[:, None] * torch.complex(*memory.write), 1.0


def s5(memory: Any) -> tuple[Tensor, Tensor, float]:
    """Return the same as `lru`."""
    mode, step = -memory.log_decay.exp() + 1j * memory.frequency, memory.log_step.exp()
    left = (step * mode).exp()
    return left, ((left - 1) / mode)[:, None] * torch.complex(*memory.write), 2.0


@torch.no_grad()
@pytest.mark.parametrize(
    ("cls", "told", "settings"),
    [(LRU, lru, {}), (LRU, lru, {"states": 6}), (S5, s5, {}), (S5, s5, {"states": 12, "blocks": 3})],
)
def test_it_is_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, cls: Any, told: Any, settings: dict[str, Any]
) -> None:
    mixer = randomise(build_mixer(cls, **settings))
    left, write, factor = told(mixer.memory)
    read = torch.complex(*mixer.memory.read)
    h, outputs = torch.zeros(B, len(left), dtype=torch.complex128), []
    for token in x.unbind(dim=1):
        h = left * h + token.to(h.dtype) @ write.T
        outputs.append(factor * (h @ read.T).real)
    o = torch.stack(outputs, dim=1) + mixer.skip * x
    value, gate = mixer.linear(F.gelu(o)).chunk(2, dim=-1)
    y, state, _ = mixer(x)
    assert relative_error(y, value * torch.sigmoid(gate)) < 1e-10
    assert relative_error(state.memory, torch.stack([h.real, h.imag], dim=1)) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("cls", [LRU, S5])
def test_in_float32_angles_keep_their_digits(
    relative_error: Error, generator: torch.Generator, cls: Any
) -> None:
    """After 4,000 tokens of up to half a turn or more each."""
    mixer = build_mixer(cls, **({"r_min": 0.9, "r_max": 0.999} if cls is LRU else {}))
    x = torch.randn(1, 4000, D, dtype=torch.float64, generator=generator)
    exact = mixer(x).state.memory
    assert relative_error(mixer.float()(x.float()).state.memory, exact) < 1e-4


@torch.no_grad()
def test_lru_starts_as_published() -> None:
    wide = LayerInfo(0, 1, 512)
    mixer = build_mixer(LRU, wide, r_min=0.5, r_max=0.9, max_phase=0.3)
    squares = (-2 * mixer.memory.log_decay.exp()).exp()
    angles = mixer.memory.log_angle.exp()
    assert 0.25 <= squares.min() < 0.26
    assert 0.8 < squares.max() <= 0.81
    assert squares.mean().item() == pytest.approx(0.53, abs=0.03)
    assert angles.max() <= 0.3
    assert angles.mean().item() == pytest.approx(0.15, abs=0.02)
    torch.testing.assert_close(mixer.memory.log_gamma.exp().square(), 1 - squares, rtol=1e-5, atol=0)
    assert mixer.memory.write.std().item() == pytest.approx(1024**-0.5, rel=0.01)
    assert mixer.memory.read.std().item() == pytest.approx(512**-0.5, rel=0.01)
    names = {"log_decay", "log_angle", "log_gamma", "write", "read"}
    rules = mixer.parameter_rules()
    assert rules == dict.fromkeys((*(f"memory.{name}" for name in names), "skip"), Rule(decay=False))


@torch.no_grad()
def test_lru_keeps_the_size_of_noise(generator: torch.Generator) -> None:
    """At first, with gamma and B: h is as large for modes that last as for those that fade."""
    mixer = build_mixer(LRU, LayerInfo(0, 1, 32), r_max=0.99)
    x = torch.randn(64, 300, 32, dtype=torch.float64, generator=generator)
    h = mixer(x).state.memory.square().sum(dim=1).mean(dim=0)
    assert h.mean().item() == pytest.approx(1, abs=0.1)
    assert h.min() > 0.5
    assert h.max() < 1.7


@torch.no_grad()
def test_s5_starts_with_the_modes_of_hippo() -> None:
    size = 8
    frequency, vectors = hippo_modes(size)
    n = torch.arange(size, dtype=torch.float64)
    legs = -torch.tril(((2 * n[:, None] + 1) * (2 * n + 1)).sqrt(), diagonal=-1) - torch.diag(n + 1)
    low = (n + 0.5).sqrt()
    normal = (legs + low[:, None] * low).to(vectors.dtype)  # the normal part of HiPPO-LegS
    torch.testing.assert_close(normal @ vectors, vectors * (-0.5 + 1j * frequency), rtol=0, atol=1e-10)
    assert (frequency > 0).all()
    mixer = build_mixer(S5, states=16, blocks=2)
    torch.testing.assert_close(mixer.memory.frequency, frequency.repeat(2), rtol=1e-6, atol=0)
    assert mixer.memory.log_decay.exp().unique().item() == pytest.approx(0.5)
    steps = build_mixer(S5, LayerInfo(0, 1, 256)).memory.log_step.exp()
    assert 0.001 <= steps.min() < steps.max() <= 0.1001
    assert steps.median().item() == pytest.approx(0.01, rel=0.3)


@torch.no_grad()
def test_s5_starts_as_a_real_system_in_the_basis_of_its_modes(x: Tensor, relative_error: Error) -> None:
    """The system is HiPPO's matrix with real maps, if all modes have one step."""
    mixer = build_mixer(S5, states=8)
    memory = mixer.memory
    memory.log_step.fill_(math.log(0.1))
    _, vectors = hippo_modes(8)
    write = 2 * (vectors @ torch.complex(*memory.write)).real
    read = 2 * (torch.complex(*memory.read) @ vectors.mH).real
    root = (2 * torch.arange(8, dtype=torch.float64) + 1).sqrt()
    upper = torch.triu(root[:, None] * root / 2, diagonal=1)
    matrix = upper - upper.mT - torch.eye(8, dtype=torch.float64) / 2
    left = torch.linalg.matrix_exp(0.1 * matrix)
    held = torch.linalg.solve(matrix, (left - torch.eye(8, dtype=torch.float64)) @ write)
    h, outputs = torch.zeros(B, 8, dtype=torch.float64), []
    for token in x.unbind(dim=1):
        h = h @ left.T + token @ held.T
        outputs.append(h @ read.T)
    assert relative_error(memory(x, None)[0], torch.stack(outputs, dim=1)) < 1e-5


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match=r"model\.blocks = 3 does not divide the 8 modes"):
        build_mixer(S5, blocks=3)
    with pytest.raises(UserError, match="r_min must be at most r_max"):
        build_mixer(LRU, r_min=0.9, r_max=0.5)
