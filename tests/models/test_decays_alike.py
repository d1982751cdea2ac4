"""Decayed sums that are each other, where what tells them apart is taken away."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.base import Mixer
from linbench.models.dfw import DFW
from linbench.models.gla import GLA
from linbench.models.hgrn2 import HGRN2
from linbench.models.lightning import Lightning
from linbench.models.linear_attention import LinearAttention
from linbench.models.mamba2 import Mamba2
from linbench.models.retnet import RetNet
from tests.helpers.decayed_sums import PLAIN, T, build, projected
from tests.helpers.models import HEADS, B, D, Error, Randomise


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=generator)


@torch.no_grad()
def test_without_its_decay_retnet_is_a_sum(x: Tensor, randomise: Randomise, relative_error: Error) -> None:
    sums = randomise(build(LinearAttention, **PLAIN, normalise=False))
    retnet = build(RetNet, **PLAIN)
    assert not retnet.load_state_dict(sums.state_dict(), strict=False).unexpected_keys
    assert relative_error(retnet(x).y, sums(x).y) > 1e-3
    retnet.decay.log_decay.zero_()
    assert relative_error(retnet(x).y, sums(x).y) < 1e-12


@torch.no_grad()
def test_retnet_without_rotation_is_lightning_of_its_decays(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    retnet, lightning = randomise(build(RetNet, **PLAIN)), build(Lightning, **PLAIN, value_map="identity")
    lightning.load_state_dict(retnet.state_dict())
    assert relative_error(lightning(x).y, (D // HEADS) ** 0.5 * retnet(x).y) < 1e-12


@torch.no_grad()
def test_gla_of_equal_decays_is_retnet_without_rotation(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    gla, retnet = randomise(build(GLA, **PLAIN)), build(RetNet, **PLAIN)
    retnet.load_state_dict(
        {name: value for name, value in gla.state_dict().items() if not name.startswith("decay.")},
        strict=False,
    )
    assert relative_error(gla(x).y, retnet(x).y) > 1e-3
    gla.decay.project.up.weight.zero_()
    gla.decay.project.up.bias.copy_(torch.tensor([1.0, -2.0]).repeat_interleave(D // HEADS))
    retnet.decay.log_decay.copy_(F.logsigmoid(torch.tensor([1.0, -2.0], dtype=torch.float64)) / 16)
    assert relative_error(gla(x).y, retnet(x).y) < 1e-12


@torch.no_grad()
def test_hgrn2_is_gated_linear_attention_of_tied_keys(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    hgrn2, gla = (
        randomise(build(HGRN2, **PLAIN | {"feature_map": "silu"})),
        build(GLA, **PLAIN, gate_rank=D, gate_divisor=1.0),
    )
    q, logits, v = projected(hgrn2, x, D, D, D)
    gla.decay.project.down.weight.copy_(torch.eye(D))
    gla.decay.project.up.weight.copy_(hgrn2.project.linear.weight[D : 2 * D])
    assert relative_error(gla.decay(x), F.logsigmoid(logits)) < 1e-12
    given, _ = gla.recur(x, F.silu(q), 1 - gla.decay(x).exp(), v, None)
    assert relative_error(given, hgrn2.recur(x, F.silu(q), logits, v, None)[0]) < 1e-12


@torch.no_grad()
def test_dfw_that_keeps_values_is_gated_linear_attention(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    dfw, gla = randomise(build(DFW, **PLAIN)), build(GLA, **PLAIN, gate_rank=D, gate_divisor=1.0)
    gla.load_state_dict(
        {name: value for name, value in dfw.state_dict().items() if "decay" not in name}, strict=False
    )
    gla.decay.project.down.weight.copy_(torch.eye(D))
    gla.decay.project.up.load_state_dict(dfw.key_decay.project.state_dict())
    assert relative_error(dfw(x).y, gla(x).y) > 1e-3
    dfw.value_decay.project.weight.zero_()
    dfw.value_decay.project.bias.fill_(60.0)
    assert relative_error(dfw(x).y, gla(x).y) < 1e-12


@torch.no_grad()
def test_mamba2_that_keeps_everything_is_a_sum(
    x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    plain = PLAIN | {"conv": 4}
    mamba2, sums = (
        randomise(build(Mamba2, **plain, groups="null")),
        build(LinearAttention, **plain, normalise=False),
    )
    assert not sums.load_state_dict(
        mamba2.state_dict() | {"project.conv.bias": torch.zeros(1)}, strict=False
    ).missing_keys
    mamba2.project.conv.bias.zero_()
    mamba2.decay.project.weight.zero_()
    mamba2.decay.dt_bias.fill_(math.log(math.expm1(1.0)))
    expected = (D // HEADS) ** 0.5 * sums(x).y
    for change in (lambda: mamba2.skip.zero_(), lambda: mamba2.decay.A_log.fill_(-math.inf)):
        assert relative_error(mamba2(x).y, expected) > 1e-3
        change()
    assert relative_error(mamba2(x).y, expected) < 1e-12


def keep_everything(mixer: Mixer) -> float:
    """Turn off all that forgets, and what else the recurrence has beside a sum; returns the factor on the
    output."""
    for name, x in mixer.state_dict().items():
        if name.endswith(("log_decay", "decay.project.weight", "decay.project.up.weight", "skip")):
            x.zero_()
        elif name.endswith(("decay.project.bias", "decay.project.up.bias")):
            x.fill_(60.0)
        elif name.endswith("A_log"):
            x.fill_(-math.inf)
        elif name.endswith("dt_bias"):
            x.fill_(math.log(math.expm1(1.0)))
    return (D // HEADS) ** 0.5 if isinstance(mixer, Lightning | Mamba2) else 1.0


@torch.no_grad()
@pytest.mark.parametrize("cls", [RetNet, Lightning, GLA, Mamba2, DFW])
def test_nothing_but_the_recurrence_differs_in_the_controlled_form(
    cls: type[Mixer], x: Tensor, randomise: Randomise, relative_error: Error
) -> None:
    mixer = randomise(build(cls, **cls.controlled | {"output_norm": "none"}))
    sums = build(
        LinearAttention,
        **LinearAttention.controlled | {"output_norm": "none", "normalise": False, "feature_map": "identity"},
    )
    assert not sums.load_state_dict(mixer.state_dict(), strict=False).missing_keys
    expected = sums(x).y
    assert relative_error(mixer(x).y, expected) > 1e-2
    factor = keep_everything(mixer)
    assert relative_error(mixer(x).y, factor * expected) < 1e-12
