"""KDA with signed decays: its equation, KDA if they stay positive, and a rotation of two channels."""

import math

import pytest
import torch
from torch import Tensor

from linbench.models.base import LayerInfo
from linbench.models.blocks.channel_decay import LEAST
from linbench.models.blocks.heads import share_input
from linbench.models.blocks.linear import SharedInput
from linbench.models.kda import KDA
from tests.helpers.equations import assert_recurs_as
from tests.helpers.models import HEADS, B, D, Error, Randomise, build_mixer

T = 67


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


def decays(mixer: KDA, x: Tensor) -> Tensor:
    """The decays as published, [B, T, H, K]."""
    low = x @ mixer.decay.project.down.weight.T @ mixer.decay.project.up.weight.T + mixer.decay.dt_bias
    a = torch.tanh(mixer.decay.A_log.exp()[:, None] * low.unflatten(-1, (HEADS, -1)) / 2)
    return a.sign() * (LEAST + (1 - LEAST) * a.abs())


def looped(mixer: KDA, x: Tensor) -> tuple[Tensor, Tensor]:
    """o and the memory, token by token."""
    q, k, v, _ = mixer.project(share_input(x, mixer, mixer.readout), None)
    a, beta = decays(mixer, x), 2 * torch.sigmoid(x @ mixer.beta.project.weight.T)[..., None, None]
    S, eye, outputs = x.new_zeros(B, HEADS, k.shape[-1], v.shape[-1]), torch.eye(k.shape[-1]).double(), []
    for t in range(x.shape[1]):
        key = k[:, t, ..., None]
        S = (eye - beta[:, t] * key * key.mT) @ (a[:, t, ..., None] * S)
        S = S + beta[:, t] * key * v[:, t, :, None]
        outputs.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]) / k.shape[-1] ** 0.5)
    return torch.stack(outputs, dim=1), S


def test_it_is_its_equation(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    """Outputs, state and gradients."""
    mixer = randomise(build_mixer(KDA, signed_decay="spread", neg_eigval=True, expand_k=0.5))
    assert 0.2 < (decays(mixer, x) < 0).double().mean() < 0.8
    assert_recurs_as(looped, mixer, x, relative_error)


@torch.no_grad()
def test_signed_decays_that_stay_positive_are_kda(x: Tensor, randomise: Randomise) -> None:
    signed = randomise(build_mixer(KDA, signed_decay="spread"))
    kda = build_mixer(KDA)
    kda.load_state_dict(signed.state_dict())
    kda.decay.forward = lambda given: signed.decay(share_input(given.x, signed, signed.readout))
    assert not torch.equal(signed(x).y, kda(x).y)
    signed.decay.dt_bias.fill_(9)
    assert (decays(signed, x) > 0).all()
    assert torch.equal(signed(x).y, kda(x).y)


@torch.no_grad()
def test_a_negative_decay_and_a_reflection_turn_a_pair_of_channels(relative_error: Error) -> None:
    """Decays of -1 and 1, beta = 2 and a key (cos t, sin t) turn the memory by the angle 2 t."""
    mixer, angle, steps = build_mixer(KDA, signed_decay="positive", neg_eigval=True, head_dim=2), 0.3, 50
    for part in (mixer.decay.project.up, mixer.beta.project):
        part.weight.zero_()
    mixer.beta.largest = 4.0  # of which sigmoid(0) is one half
    mixer.decay.dt_bias.copy_(torch.tensor([-80.0, 80.0]).repeat(HEADS))
    key = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64).expand(B, steps, HEADS, 2)
    start = torch.randn(B, HEADS, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    given = SharedInput(torch.zeros(B, steps, D).double(), [mixer.decay.project.down, mixer.beta.project])
    _, memory = mixer.recur(given, key, key, torch.zeros_like(key), start)
    cos, sin = math.cos(2 * angle * steps), math.sin(2 * angle * steps)
    turned = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64) @ start
    assert relative_error(memory, turned) < 1e-9


@torch.no_grad()
def test_they_start_as_published() -> None:
    wide = LayerInfo(0, 1, 64)
    zeros = torch.zeros(1, 1, 64, dtype=torch.float64)
    for start, negative in (("positive", 0.0), ("spread", 0.5)):
        mixer = build_mixer(KDA, wide, signed_decay=start, heads=32)
        log_size, below = mixer.decay.signed(share_input(zeros, mixer, mixer.readout))
        assert below.double().mean().item() == pytest.approx(negative, abs=0.2)
        assert -0.1001 < log_size.min() < log_size.max() < -0.00099
        assert log_size.median().item() == pytest.approx(-0.01, rel=0.1)
    bound = 0.1 * mixer.decay.project.up.in_features**-0.5
    assert 0.9 * bound < mixer.decay.project.up.weight.abs().max() <= bound
    kept = build_mixer(KDA, wide, signed_decay="spread", forget_bias=8).decay
    sizes = kept.signed(SharedInput(zeros, [kept.project.down]))[0]
    torch.testing.assert_close(sizes, torch.full_like(sizes, -math.log1p(math.exp(-8))), rtol=1e-4, atol=0)
