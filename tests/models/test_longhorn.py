"""Longhorn: what it minimises, its equation token by token, and the delta rule that it is."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.matrix_state import Delta, matrix_state
from linbench.models.base import Rule
from linbench.models.longhorn import Longhorn
from tests.helpers.models import B, D, Randomise, build_mixer

W, N = 2 * D, 16
LENGTHS = (1, 65, *(pytest.param(length, marks=pytest.mark.slow) for length in (63, 100)))


def told(mixer: Longhorn, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """b [B, T, W], k and q [B, T, N]."""
    beta = torch.sigmoid(u @ mixer.step.down.weight.T @ mixer.step.up.weight.T + mixer.step.up.bias)
    return beta, u @ mixer.write.weight.T, u @ mixer.read.weight.T


def looped(mixer: Longhorn, u: Tensor) -> tuple[Tensor, Tensor]:
    """Return what is read, and the memory, token by token."""
    beta, k, q = told(mixer, u)
    h, outputs = u.new_zeros(B, W, N), []
    for t in range(u.shape[1]):
        key = k[:, t, None]
        step = beta[:, t] / (1 + beta[:, t] * key.square().sum(dim=-1))
        erased = (h * key).sum(dim=-1, keepdim=True) * key if mixer.settings.erase == "key" else h * key**2
        h = h - step[..., None] * erased + (step * u[:, t])[..., None] * key
        outputs.append((h * q[:, t, None]).sum(dim=-1))
    return torch.stack(outputs, dim=1), h


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("erase", ["diagonal", "key"])
def test_it_is_its_equation(
    generator: torch.Generator, randomise: Randomise, length: int, erase: str
) -> None:
    """Outputs, memory and every gradient of the recurrence."""
    mixer: Any = randomise(build_mixer(Longhorn, erase=erase))
    u = 2 * torch.randn(B, length, W, dtype=torch.float64, generator=generator)
    found = []
    for compute in (lambda x: mixer.recur(x, None), lambda x: looped(mixer, x)):
        x = u.clone().requires_grad_()
        made = torch.cat([part.flatten() for part in compute(x)])
        weights = torch.linspace(-1, 2, len(made), dtype=made.dtype).sin()
        of = [
            x,
            *(mixer.get_parameter(f"{name}.weight") for name in ("step.down", "step.up", "write", "read")),
        ]
        found.append([made, *torch.autograd.grad((made * weights).sum(), [*of, mixer.step.up.bias])])
    for given, expected in zip(*found, strict=True):
        limit = 1e-10 * (1 + expected.abs().max().item())
        torch.testing.assert_close(given, expected, rtol=0, atol=limit)


@torch.no_grad()
def test_the_whole_layer_is_mambas_block_around_it(generator: torch.Generator, randomise: Randomise) -> None:
    mixer, x = (
        randomise(build_mixer(Longhorn)),
        torch.randn(B, 9, D, dtype=torch.float64, generator=generator),
    )
    u = x @ mixer.inner.weight.T
    taps = mixer.conv.short.weight
    u = sum(F.pad(u, (0, 0, 3 - i, 0))[:, : x.shape[1]] * taps[i] for i in range(4)) + mixer.conv.short.bias
    u = F.silu(u)
    y = (looped(mixer, u)[0] + mixer.skip * u) * F.silu(x @ mixer.gate.weight.T) @ mixer.linear.weight.T
    torch.testing.assert_close(mixer(x).y, y, rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_step_along_the_key_minimises_the_error_after_it(
    generator: torch.Generator, randomise: Randomise
) -> None:
    """The gradient of |h - h'|^2 + b (h . k - x)^2 vanishes at each new memory: the step is implicit."""
    mixer = randomise(build_mixer(Longhorn, erase="key"))
    u = 3 * torch.randn(B, 9, W, dtype=torch.float64, generator=generator)
    beta, k, _ = told(mixer, u)
    before = None
    for t in range(9):
        _, h = mixer.recur(u[:, t : t + 1], before)
        moved = h if before is None else h - before
        error = (h * k[:, t, None]).sum(dim=-1) - u[:, t]
        slope = moved + (beta[:, t] * error)[..., None] * k[:, t, None]
        assert slope.abs().max() < 1e-12
        before = h


@torch.no_grad()
def test_it_is_a_delta_rule_whose_strength_falls_with_the_keys_length(
    generator: torch.Generator, randomise: Randomise
) -> None:
    """The explicit step with b instead of b / (1 + b |k|^2) would run away with keys as long as these."""
    mixer = randomise(build_mixer(Longhorn, erase="key"))
    u = 20 * torch.randn(B, 40, W, dtype=torch.float64, generator=generator)
    beta, k, q = told(mixer, u)

    def ruled(strength: Tensor) -> Tensor:
        heads = q[:, :, None], k[:, :, None], u[..., None]
        return matrix_state(*heads, update=Delta(strength), scale=1.0)[0][..., 0]

    o, _ = mixer.recur(u, None)
    torch.testing.assert_close(o, ruled(beta / (1 + beta * k.square().sum(dim=-1, keepdim=True))))
    assert ruled(beta).abs().max() > 1e6 * o.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("erase", ["diagonal", "key"])
def test_with_keys_of_one_direction_both_forms_agree_and_forget_nothing_else(erase: str) -> None:
    mixer = build_mixer(Longhorn, erase=erase)
    mixer.write.weight.zero_()
    mixer.write.weight[3] = 0.5
    memory = torch.linspace(-1, 2, B * W * N, dtype=torch.float64).sin().view(B, W, N)
    u = torch.ones(B, 1, W, dtype=torch.float64)
    beta, k, _ = told(mixer, u)
    left = 1 / (1 + beta[:, 0] * k[:, 0, 3, None] ** 2)
    expected = memory.clone()
    expected[..., 3] = left * memory[..., 3] + (1 - left) / k[:, 0, 3, None] * u[:, 0]
    torch.testing.assert_close(mixer.recur(u, memory)[1], expected)


def test_it_starts_with_small_steps() -> None:
    mixer = build_mixer(Longhorn)
    steps = torch.sigmoid(mixer.step.up.bias)
    assert 9e-4 < steps.min() < 1.3e-3
    assert 0.07 < steps.max() <= 0.1
    assert mixer.parameter_rules() == dict.fromkeys(("step.up.bias", "skip"), Rule(decay=False))
