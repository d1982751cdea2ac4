"""Rotations that tokens choose, for GLA: its equation, rotary positions and none as special cases, and parity
by angles set by hand."""

import math

import pytest
import torch
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import Rule
from linbench.models.blocks.heads import share_input
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.positions import SelectiveRotation
from linbench.models.gla import GLA
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer, streamed

LENGTHS = [1, 63, 65, 100]


def tokens(length: int) -> Tensor:
    return torch.randn(B, length, D, dtype=torch.float64, generator=torch.Generator().manual_seed(length))


def like(mixer: GLA, positions: str, **settings: object) -> GLA:
    """A layer with other positions and the same weights."""
    other: GLA = build_mixer(GLA, positions=positions, **settings)
    other.load_state_dict(mixer.state_dict(), strict=False)
    return other


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"conv": 4, "qk_norm": "l2"}, {"key_heads": 1}], ids=str)
def test_it_is_its_equation(randomise: Randomise, relative_error: Error, settings: dict[str, object]) -> None:
    mixer, x = randomise(build_mixer(GLA, positions="selective", **settings)), tokens(65)
    given = share_input(x, mixer, mixer.readout)
    q, k, v, _ = mixer.project(given, None)
    decay = mixer.decay(given).exp()
    half = mixer.project.key_dim // 2
    frequency = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    choice = x @ mixer.selective.turn.weight.T
    S = torch.zeros(B, HEADS, 2 * half, v.shape[3], dtype=torch.float64)
    chosen, outputs = torch.zeros(B, q.shape[2], half, dtype=torch.float64), []
    for t in range(65):
        chosen = chosen + frequency * choice[:, t].view(B, -1, half)
        angle = chosen + t * frequency * mixer.selective.bias.view(-1, half)
        turned = []
        for each in (q[:, t], k[:, t]):
            modes = torch.complex(each[..., :half], each[..., half:]) * torch.complex(
                angle.cos(), angle.sin()
            )
            turned.append(
                torch.cat([modes.real, modes.imag], dim=-1).repeat_interleave(HEADS // q.shape[2], 1)
            )
        S = decay[:, t, :, :, None] * S + turned[1][..., None] * v[:, t, :, None]
        outputs.append((turned[0][:, :, None] @ S)[:, :, 0] / math.sqrt(2 * half))
    found, state, _ = mixer(x)
    assert relative_error(found, mixer.readout(torch.stack(outputs, dim=1), given)) < 1e-10
    assert relative_error(state.memory, S) < 1e-10
    assert relative_error(state.angle, chosen.flatten(1).remainder(2 * math.pi)) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("length", LENGTHS)
def test_constant_angles_are_rotary_positions_where_it_starts(
    randomise: Randomise, relative_error: Error, length: int
) -> None:
    mixer, x = randomise(build_mixer(GLA, positions="selective")), tokens(length)
    mixer.selective.turn.weight.zero_()
    mixer.selective.bias.fill_(1.0)
    assert relative_error(mixer(x).y, like(mixer, "rope")(x).y) < 1e-10
    fresh = build_mixer(GLA, positions="selective", silent=False)
    assert relative_error(fresh(x).y, like(fresh, "rope", silent=False)(x).y) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("length", LENGTHS)
def test_angles_of_zero_are_gla(randomise: Randomise, relative_error: Error, length: int) -> None:
    mixer, x = randomise(build_mixer(GLA, positions="selective")), tokens(length)
    for parameter in mixer.selective.parameters():
        parameter.zero_()
    assert relative_error(mixer(x).y, like(mixer, "none")(x).y) < 1e-12


@torch.no_grad()
def test_a_half_turn_for_every_one_tells_parity() -> None:
    """q_t . k_s is 1 if an even number of ones came after s, else -1, for bits as inputs; at any length,
    and in float32."""
    rotation = SelectiveRotation(1, 1, 2)
    rotation.turn.weight.fill_(math.pi)
    rotation.bias.zero_()
    bits = torch.randint(0, 2, (4, 1000, 1), generator=torch.Generator().manual_seed(0)).float()
    same = torch.tensor([1.0, 0.0]).expand(4, 1000, 1, 2)
    q, k, _, angle = rotation(SharedInput(bits, [rotation.turn]), same, same, None, None)
    ones = bits[..., 0].cumsum(dim=1) - bits[:, :1, 0]
    parity = 1 - 2 * (ones % 2)
    torch.testing.assert_close((q * k[:, :1]).sum(dim=(2, 3)), parity, rtol=0, atol=1e-3)
    assert angle.dtype == torch.float64


@torch.no_grad()
def test_it_streams(randomise: Randomise, relative_error: Error) -> None:
    mixer, x = randomise(build_mixer(GLA, positions="selective", key_heads=1)), tokens(100)
    assert mixer.state_floats(5).recurrent == HEADS * 4 * 8 + 2
    for y in streamed(mixer, x, prompt=37):
        assert relative_error(y, mixer(x).y) < 1e-9


def test_biases_of_angles_do_not_decay() -> None:
    rules = build_mixer(GLA, positions="selective").parameter_rules()
    assert rules == dict.fromkeys(("decay.project.up.bias", "selective.bias"), Rule(decay=False))


def test_an_odd_dimension_cannot_be_turned() -> None:
    with pytest.raises(UserError, match=r"model\.positions = selective needs an even key dimension, not 7"):
        build_mixer(GLA, positions="selective", head_dim=7)
