"""H3: its equation token by token, and how it starts."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.common.errors import UserError
from linbench.models.base import LayerInfo, Rule
from linbench.models.h3 import H3
from tests.models.building import B, D, Error, Randomise, build
from tests.models.decaying import normed
from tests.models.shifting import convolved

T = 71


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [{}, {"states": 6, "head_dim": 4}, {"states": 4, "skip": False}, {"states": 8, "modes": "inv", "output_norm": "rms", "conv": 4}],
    ids=str,
)
def test_it_is_its_equation(x: Tensor, randomise: Randomise, relative_error: Error, settings: dict[str, Any]) -> None:
    mixer = randomise(build(H3, **settings))
    wide, skip = settings.get("head_dim", 1), settings.get("skip", True)
    read = convolved(x, mixer.conv.short.weight) if settings.get("conv") else x
    q, k, v = (read @ mixer.project.weight.T + mixer.project.bias).chunk(3, dim=-1)
    memory = mixer.memory
    rate = torch.complex(-memory.log_decay.exp(), memory.frequency)
    left = (memory.log_step.exp()[:, None] * rate).exp()
    left, write, reads = (each.repeat_interleave(wide**2, dim=0) for each in (left, (left - 1) / rate, torch.complex(*memory.read.unbind(-1))))
    h, outputs = torch.zeros(B, *left.shape, dtype=torch.complex128), []
    for t in range(T):
        shifted = sum(mixer.taps[:, i] * k[:, t - i] for i in range(min(t + 1, mixer.taps.shape[1])))
        shifted = shifted + mixer.key_skip * k[:, t] if skip else shifted
        kv = torch.einsum("bhi,bhj->bhij", shifted.view(B, -1, wide), v[:, t].view(B, -1, wide)).flatten(1)
        h = left * h + write * kv[..., None]
        kept = 2 * (reads * h).real.sum(dim=-1)
        kept = kept + mixer.skip.repeat_interleave(wide**2) * kv if skip else kept
        outputs.append(torch.einsum("bhi,bhij->bhj", q[:, t].view(B, -1, wide), kept.view(B, -1, wide, wide)).flatten(1))
    o = torch.stack(outputs, dim=1)
    o = normed(o, mixer.norm.weight) if mixer.norm is not None else o
    found, state, _ = mixer(x)
    assert relative_error(found, o @ mixer.linear.weight.T + mixer.linear.bias) < 1e-10
    assert relative_error(state.memory, torch.view_as_real(h).flatten(-2)) < 1e-10
    torch.testing.assert_close(state.taps, F.pad(k, (0, 0, mixer.taps.shape[1], 0))[:, -(mixer.taps.shape[1] - 1) :])


def test_it_starts_as_published() -> None:
    mixer = build(H3)
    assert mixer.taps.abs().max() <= 1 / 8 < 1.05 * mixer.taps.abs().max()
    assert mixer.memory.read.shape == (D, 32, 2)
    wide = build(H3, LayerInfo(0, 1, 512), head_dim=2)
    for skip in (wide.key_skip, wide.skip):
        assert (skip.mean().item(), skip.std().item()) == pytest.approx((0, 1), abs=0.2), "standard normal"
    assert (wide.key_skip.shape, wide.skip.shape, wide.memory.log_step.shape) == ((512,), (256,), (256,))
    for part in (mixer.linear.weight, mixer.linear.bias):
        assert not part.any()


def test_only_maps_decay() -> None:
    maps = {"project.weight", "project.bias", "linear.weight", "linear.bias"}
    names = dict(build(H3).named_parameters()).keys()
    assert build(H3).parameter_rules() == dict.fromkeys(names - maps, Rule(decay=False))


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(UserError, match=r"model\.head_dim = 3 does not divide d_model = 16"):
        build(H3, head_dim=3)
