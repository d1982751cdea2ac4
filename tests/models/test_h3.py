"""H3: its equation token by token, and how it starts."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.signal import cont2discrete
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import LayerInfo, Rule
from linbench.models.h3 import H3
from tests.helpers.decayed_sums import normed
from tests.helpers.models import B, D, Error, Randomise, build_mixer
from tests.helpers.rwkv import convolved

T = 71


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"discretisation": "zoh"},
        {"states": 6, "head_dim": 4},
        {"states": 6, "head_dim": 4, "discretisation": "zoh"},
        {"states": 4, "skip": False},
        {"states": 8, "modes": "inv", "output_norm": "rms", "conv": 4},
    ],
    ids=str,
)
def test_it_is_its_equation(
    x: Tensor, randomise: Randomise, relative_error: Error, settings: dict[str, Any]
) -> None:
    mixer = randomise(build_mixer(H3, **settings))
    wide, skip = settings.get("head_dim", 1), settings.get("skip", True)
    read = convolved(x, mixer.conv.short.weight) if settings.get("conv") else x
    q, k, v = (read @ mixer.project.weight.T + mixer.project.bias).chunk(3, dim=-1)
    memory = mixer.memory
    rate = torch.complex(-memory.log_decay.exp(), memory.frequency)
    step = memory.log_step.exp()[:, None]
    if settings.get("discretisation") == "zoh":
        left = (step * rate).exp()
        write = (left - 1) / rate
    else:
        left, write = (1 + step * rate / 2) / (1 - step * rate / 2), step / (1 - step * rate / 2)
    left, write, reads = (
        each.repeat_interleave(wide**2, dim=0)
        for each in (left, write, torch.complex(*memory.read.unbind(-1)))
    )
    h, outputs = torch.zeros(B, *left.shape, dtype=torch.complex128), []
    for t in range(T):
        shifted = sum(mixer.taps[:, i] * k[:, t - i] for i in range(min(t + 1, mixer.taps.shape[1])))
        shifted = shifted + mixer.key_skip * k[:, t] if skip else shifted
        kv = torch.einsum("bhi,bhj->bhij", shifted.view(B, -1, wide), v[:, t].view(B, -1, wide)).flatten(1)
        h = left * h + write * kv[..., None]
        kept = 2 * (reads * h).real.sum(dim=-1)
        kept = kept + mixer.skip.repeat_interleave(wide**2) * kv if skip else kept
        outputs.append(
            torch.einsum("bhi,bhij->bhj", q[:, t].view(B, -1, wide), kept.view(B, -1, wide, wide)).flatten(1)
        )
    o = torch.stack(outputs, dim=1)
    o = normed(o, mixer.norm.weight) if mixer.norm is not None else o
    found, state, _ = mixer(x)
    assert relative_error(found, o @ mixer.linear.weight.T + mixer.linear.bias) < 1e-10
    assert relative_error(state.memory, torch.view_as_real(h).flatten(-2)) < 1e-10
    torch.testing.assert_close(
        state.taps, F.pad(k, (0, 0, mixer.taps.shape[1], 0))[:, -(mixer.taps.shape[1] - 1) :]
    )


@torch.no_grad()
@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
def test_its_modes_take_steps_as_scipy_has_them(randomise: Randomise, discretisation: str) -> None:
    """dh/dt = l h + x by `scipy.signal.cont2discrete`, which knows real numbers alone: a mode is two of
    them."""
    mixer = randomise(build_mixer(H3, states=8, discretisation=discretisation))
    # beyond 2 / d, where A is negative
    mixer.memory.log_decay[0, 0], mixer.memory.log_step[0], mixer.memory.frequency[0, 0] = 3.0, 1.0, 0.0
    powers, write, _ = mixer.memory._filter(3, torch.float64)
    for channel in range(D):
        for mode in range(4):
            decay, frequency = (
                mixer.memory.log_decay[channel, mode].exp().item(),
                mixer.memory.frequency[channel, mode].item(),
            )
            real = np.array([[-decay, -frequency], [frequency, -decay]])
            system = real, np.array([[1.0], [0.0]]), np.eye(2), np.zeros((2, 1))
            kept, written, *_ = cont2discrete(
                system, mixer.memory.log_step[channel].exp().item(), discretisation
            )
            for made, expected in (
                (powers[channel, 3, mode], np.linalg.matrix_power(kept, 3)),
                (write[channel, mode], written),
            ):
                assert torch.view_as_real(made).tolist() == pytest.approx(
                    expected[:, 0].tolist(), rel=1e-9, abs=1e-12
                )


def test_a_mode_that_a_step_forgets_has_finite_gradients() -> None:
    """If d l = -2, nothing is left of the mode."""
    memory = build_mixer(H3, states=4).memory.float()
    with torch.no_grad():
        memory.log_step.fill_(0.0)
        memory.log_decay.fill_(math.log(2))
        memory.frequency.zero_()
    y, _ = memory(torch.ones(1, 5, D), None)
    gradients = torch.autograd.grad(y.square().sum(), list(memory.parameters()))
    assert all(x.isfinite().all() for x in (y, *gradients))


@torch.no_grad()
def test_in_float32_its_filter_is_that_of_float64(relative_error: Error) -> None:
    memory = build_mixer(H3).memory
    exact, _ = memory(torch.eye(1, 200, dtype=torch.float64)[..., None].expand(-1, -1, D), None)
    single, _ = memory.float()(torch.eye(1, 200)[..., None].expand(-1, -1, D), None)
    assert relative_error(single, exact) < 1e-5


def test_results_of_before_there_was_a_choice_are_found_by_the_name_of_what_they_are() -> None:
    """A zero-order hold was all that H3 had, and its results are filed without a word of it."""
    old = {"states": 64, "head_dim": 1, "modes": "lin", "conv": 0, "skip": True, "output_norm": "none"}
    assert build_mixer(H3, discretisation="zoh").settings.identity() == old
    assert build_mixer(H3).settings.identity() == {**old, "discretisation": "bilinear"}


def test_it_starts_as_published() -> None:
    mixer = build_mixer(H3)
    assert mixer.taps.abs().max() <= 1 / 8 < 1.05 * mixer.taps.abs().max()
    assert mixer.memory.read.shape == (D, 32, 2)
    wide = build_mixer(H3, LayerInfo(0, 1, 512), head_dim=2)
    for skip in (wide.key_skip, wide.skip):
        assert (skip.mean().item(), skip.std().item()) == pytest.approx((0, 1), abs=0.2), "standard normal"
    assert (wide.key_skip.shape, wide.skip.shape, wide.memory.log_step.shape) == ((512,), (256,), (256,))
    for part in (mixer.linear.weight, mixer.linear.bias):
        assert not part.any()


def test_only_maps_decay() -> None:
    maps = {"project.weight", "project.bias", "linear.weight", "linear.bias"}
    names = dict(build_mixer(H3).named_parameters()).keys()
    assert build_mixer(H3).parameter_rules() == dict.fromkeys(names - maps, Rule(decay=False))


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(UserError, match=r"model\.head_dim = 3 does not divide d_model = 16"):
        build_mixer(H3, head_dim=3)
