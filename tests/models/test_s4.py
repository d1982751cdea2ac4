"""S4: its recurrence with dense matrices, its filter, and how it starts."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.base import LayerInfo, Rule
from linbench.models.blocks.diagonal_ssm import Modes
from linbench.models.blocks.hippo import hippo
from linbench.models.blocks.long_convolution import long_convolution
from linbench.models.blocks.low_rank_modes import SHORT, LowRankModes
from linbench.models.s4 import S4
from tests.helpers.models import B, D, Error, Randomise, build_mixer

LENGTHS = (1, 2, SHORT + 1, 63, 65, 100)


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, 100, D, dtype=torch.float64, generator=generator)


@pytest.fixture
def memory(generator: torch.Generator) -> Tensor:
    return torch.randn(B, D, 8, dtype=torch.float64, generator=generator)


def with_conjugates(x: Tensor) -> Tensor:
    """Return complex numbers [D, N] of real and imaginary parts [D, N / 2, 2], and their conjugates."""
    half = torch.complex(*x.unbind(-1))
    return torch.cat([half, half.conj()], dim=-1)


def dense(memory: LowRankModes) -> tuple[Tensor, Tensor, Tensor]:
    """Return A [D, N, N], B and C [D, N] of the discrete system, by the bilinear rule."""
    modes = with_conjugates(torch.stack([-memory.log_decay.exp(), memory.frequency], dim=-1))
    p, b, c = (with_conjugates(each) for each in (memory.low_rank, memory.write, memory.read))
    half = memory.log_step.exp()[:, None, None] / 2
    matrix = half * (torch.diag_embed(modes) - p[..., None] * p.conj()[:, None])
    one = torch.eye(modes.shape[1], dtype=modes.dtype)
    left = torch.linalg.solve(one - matrix, one + matrix)
    return left, torch.linalg.solve(one - matrix, 2 * half * b[..., None])[..., 0], c


def by_hand(of: LowRankModes, u: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """Return y and the memory, token by token with dense matrices."""
    left, write, read = dense(of)
    h, outputs = with_conjugates(memory.unflatten(-1, (-1, 2))), []
    for token in u.unbind(dim=1):
        h = (left @ h[..., None])[..., 0] + write * token[..., None]
        outputs.append((read * h).sum(dim=-1).real)
    return torch.stack(outputs, dim=1), torch.view_as_real(h[..., : h.shape[-1] // 2]).flatten(-2)


@pytest.mark.parametrize("length", LENGTHS)
def test_both_forms_are_the_equation(
    x: Tensor, memory: Tensor, randomise: Randomise, relative_error: Error, length: int
) -> None:
    """Outputs, states and gradients."""
    mixer = randomise(build_mixer(S4, states=8))
    of, u = mixer.memory, x[:, :length].requires_grad_()
    before = memory.requires_grad_()
    inputs = (u, before, *of.parameters())
    y, after = by_hand(of, u, before)
    expected = torch.autograd.grad(y.sin().sum() + after.square().sum(), inputs)
    for form in (of.recur, of.convolve):
        found, state = form(u, before)
        assert relative_error(found, y) < 1e-10
        assert relative_error(state, after) < 1e-10
        gradients = torch.autograd.grad(found.sin().sum() + state.square().sum(), inputs)
        for gradient, other in zip(gradients, expected, strict=True):
            assert relative_error(gradient, other) < 1e-9


@torch.no_grad()
@pytest.mark.parametrize("length", [SHORT, 100])
def test_the_layer_is_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, length: int
) -> None:
    mixer, x = randomise(build_mixer(S4, states=8)), x[:, :length]
    o, _ = by_hand(mixer.memory, x, torch.zeros(B, D, 8, dtype=torch.float64))
    value, gate = mixer.linear(F.gelu(o + mixer.skip * x)).chunk(2, dim=-1)
    assert relative_error(mixer(x).y, value * torch.sigmoid(gate)) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("length", LENGTHS)
def test_without_low_rank_it_is_s4d_with_the_bilinear_rule(
    x: Tensor, memory: Tensor, randomise: Randomise, relative_error: Error, length: int
) -> None:
    of = randomise(build_mixer(S4, states=8)).memory
    of.low_rank.zero_()
    of.write.copy_(torch.tensor([1.0, 0.0]))
    diagonal = Modes(D, 8, discretisation="bilinear").double()
    diagonal.load_state_dict({name: of.state_dict()[name] for name in diagonal.state_dict()})
    y, after = diagonal(x[:, :length], memory)
    for form in (of.recur, of.convolve):
        found, state = form(x[:, :length], memory)
        assert relative_error(found, y) < 1e-10
        assert relative_error(state, after) < 1e-10


@torch.no_grad()
def test_it_starts_as_hippo() -> None:
    size = 8
    n = torch.arange(size, dtype=torch.float64)
    legs = -torch.tril(((2 * n[:, None] + 1) * (2 * n + 1)).sqrt(), diagonal=-1) - torch.diag(n + 1)
    frequency, low_rank, write = hippo(size)
    modes, p, b = (
        torch.cat([each, each.conj()])
        for each in (torch.complex(n[:4] * 0 - 0.5, frequency), low_rank, write)
    )
    matrix = torch.diag(modes) - p[:, None] * p.conj()
    for power in range(1, 4):  # what an impulse writes, seen by B itself, is the same in any basis
        real = (2 * n + 1).sqrt() @ torch.linalg.matrix_power(legs, power) @ (2 * n + 1).sqrt()
        there = b.conj() @ torch.linalg.matrix_power(matrix, power) @ b
        torch.testing.assert_close(there, real.to(there.dtype), rtol=1e-10, atol=0)
    torch.testing.assert_close(
        torch.linalg.eigvals(matrix).real.sort().values,
        torch.linalg.eigvals(legs.to(matrix.dtype)).real.sort().values,
        rtol=1e-6,
        atol=1e-6,
    )


@torch.no_grad()
def test_parameters_start_as_published() -> None:
    of = build_mixer(S4, LayerInfo(0, 1, 512), states=8).memory
    frequency, low_rank, write = hippo(8)
    for found, expected in (
        (of.frequency, frequency),
        (torch.view_as_complex(of.low_rank), low_rank),
        (torch.view_as_complex(of.write), write),
    ):
        torch.testing.assert_close(found, expected.expand(512, -1), rtol=1e-6, atol=1e-6)
    assert of.log_decay.exp().unique().item() == pytest.approx(0.5)
    assert of.read.std().item() == pytest.approx(0.5**0.5, rel=0.05)
    steps = of.log_step.exp()
    assert 0.001 <= steps.min() < steps.max() <= 0.1001
    names = ("log_step", "log_decay", "frequency", "read", "low_rank", "write")
    rules = build_mixer(S4).parameter_rules()
    assert rules == dict.fromkeys((*(f"memory.{name}" for name in names), "skip"), Rule(decay=False))


@torch.no_grad()
@pytest.mark.parametrize("length", [100, 1000])
def test_in_float32_its_filter_is_that_of_float64(
    relative_error: Error, generator: torch.Generator, length: int
) -> None:
    x = torch.randn(1, length, D, dtype=torch.float64, generator=generator)
    of = build_mixer(S4).memory
    exact: Any = of(x, of.init_state(1))
    of = of.float()
    for found, expected in zip(of(x.float(), of.init_state(1)), exact, strict=True):
        assert relative_error(found, expected) < 1e-4


@torch.no_grad()
def test_a_long_convolution_is_a_sum_over_earlier_tokens(
    x: Tensor, generator: torch.Generator, relative_error: Error
) -> None:
    taps = torch.randn(D, 100, dtype=torch.float64, generator=generator)
    expected = torch.stack(
        [(taps[:, : t + 1].flip(1).T * x[:, : t + 1]).sum(dim=1) for t in range(100)], dim=1
    )
    assert relative_error(long_convolution(x, taps), expected) < 1e-12
