"""Momentum DeltaNet is its equation, token by token, and Gated DeltaNet without its momentum."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.base import Rule
from linbench.models.blocks.heads import share_input
from linbench.models.momentum_deltanet import MomentumDeltaNet
from tests.helpers.equations import assert_recurs_as, recurred
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T = 70
Gates = tuple[Tensor, Tensor, Tensor, Tensor]


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def gates(mixer: Any, x: Tensor) -> Gates:
    """Return a, m, e and b [B, T, H], as the paper has them."""
    a, m = (
        -gate.A_log.exp() * F.softplus(x @ gate.project.weight.T + gate.dt_bias)
        for gate in (mixer.decay, mixer.momentum)
    )
    e = 1 + torch.tanh(x @ mixer.step.weight.T / math.sqrt(D))
    angle = torch.atan(e * mixer.log_factor.exp())
    b = torch.sigmoid(x @ mixer.beta.project.weight.T)
    return angle.cos() ** 2 * a.exp(), m.clamp(min=-2).exp(), e, angle.sin() ** 2 * b


def looped(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """o and the memory, S beside N."""
    q, k, v, _ = mixer.project(share_input(x, mixer, mixer.readout), None)
    q = q - mixer.log_correction.exp()[:, None] * k
    S = N = x.new_zeros(B, HEADS, q.shape[-1], v.shape[-1])
    outputs = []
    for t in range(T):
        a, m, e, b = (gate[:, t, :, None] for gate in gates(mixer, x))
        error = v[:, t] - a * torch.einsum("bhkv,bhk->bhv", S, k[:, t])
        N = m[..., None] * N + torch.einsum("bhk,bhv->bhkv", e * k[:, t], error)
        S = a[..., None] * S + b[..., None] * N
        outputs.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]) / math.sqrt(q.shape[-1]))
    return torch.stack(outputs, dim=1), torch.cat([S, N], dim=-1)


def test_it_is_its_equation(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    mixer = randomise(build_mixer(MomentumDeltaNet))
    assert (gates(mixer, x)[1] == math.exp(-2)).any()  # the floor of the momentum is met
    assert_recurs_as(looped, mixer, x, relative_error, limit=1e-9)


@torch.no_grad()
def test_without_momentum_it_is_gated_deltanet(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    mixer = randomise(build_mixer(MomentumDeltaNet))
    q, k, v, _ = mixer.project(share_input(x, mixer, mixer.readout), None)
    a, _, e, b = gates(mixer, x)
    corrected = q - mixer.log_correction.exp()[:, None] * k
    o, S = matrix_state(corrected, k, v, log_decay=a.log(), update=Delta(e * b))
    assert relative_error(recurred(mixer, x)[0], o) > 1e-3
    mixer.log_momentum = lambda given: torch.full((B, T, HEADS), -math.inf, dtype=torch.float64)
    found, memory = recurred(mixer, x)
    assert relative_error(found, o) < 1e-10
    assert relative_error(memory[..., : v.shape[-1]], S) < 1e-10


@torch.no_grad()
def test_along_a_key_no_memory_grows(generator: torch.Generator, randomise: Randomise) -> None:
    """No eigenvalue of the transition of S and N is outside of the unit circle, whatever the gates."""
    mixer = randomise(build_mixer(MomentumDeltaNet))
    a, m, e, b = gates(mixer, 10 * torch.randn(1000, 3, D, dtype=torch.float64, generator=generator))
    rows = [torch.stack(row, dim=-1) for row in ((a * (1 - b * e), b * m), (-e * a, m))]
    values = torch.linalg.eigvals(torch.stack(rows, dim=-2))
    assert values.abs().max() < 1 + 1e-12
    assert (values.imag != 0).any()


@torch.no_grad()
def test_it_starts_as_published() -> None:
    mixer = build_mixer(MomentumDeltaNet, heads=8, head_dim=4)
    assert torch.equal(mixer.momentum.dt_bias, mixer.decay.dt_bias)
    assert not torch.equal(mixer.momentum.A_log, mixer.decay.A_log)
    for start, most in ((mixer.log_factor, 4), (mixer.log_correction, 1)):
        eighths = (8 * start.exp() / most).floor().int()
        assert sorted(eighths.tolist()) == [*range(8)]
    shares = 1 / (1 + build_mixer(MomentumDeltaNet, heads=64, head_dim=4).log_factor.exp().square())
    assert shares.median().item() == pytest.approx(0.2, rel=0.1)
    rules = mixer.parameter_rules()
    assert {"momentum.A_log", "decay.dt_bias", "log_factor", "log_correction"} < rules.keys()
    assert {*rules.values()} == {Rule(decay=False)}
