"""Forget gates before training: whatever the variant, they keep what `forget_bias` says."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import UserError
from linbench.models.base import LayerInfo, Mixer
from linbench.models.blocks.gates import ScalarDecay, UniformDecay
from linbench.models.blocks.starting_gates import MOST, DrawnGateSettings
from tests.helpers.cells import plan
from tests.helpers.initial_weights import MIXERS
from tests.helpers.models import D
from tests.helpers.starting_gates import (
    LOG_DECAYS,
    half_lives,
    model_and_inputs,
    starting_at,
    starting_decays,
)

PAGE = (Path(__file__).parents[2] / "docs/initial-values.md").read_text(encoding="utf-8")
LOWEST = {"hgrn2": 0.5, "rwkv7": 0.5}
"""The lowest start that is tried with gates that are bounded from below."""
EXTREMES = {
    "hgrn2": (0.01, MOST),
    "rwkv7": (0.5, MOST),
    "mlstm": (-14.9, 14.9),
    "momentum_deltanet": (-1.85, MOST),
}
MANY_HEADS = "heads=16"
"""So many that a gate per head has a median that says something."""


def rate(forget_bias: float) -> float:
    return math.log1p(math.exp(-forget_bias))


@pytest.mark.parametrize("name", LOG_DECAYS)
@pytest.mark.parametrize("form", ["native", "controlled"])
@pytest.mark.parametrize("forget_bias", [0.0, 3.0, 8.0])
def test_gates_start_where_forget_bias_says(name: str, form: str, forget_bias: float) -> None:
    """The same for all: sigmoid(8) leaves half of what was written after 2,067 tokens."""
    forget_bias = max(forget_bias, LOWEST.get(name, forget_bias))
    heads = [MANY_HEADS] if "heads" in MIXERS[name].Settings.model_fields else []
    for log_decay in starting_decays(starting_at(name, forget_bias, *heads), form):
        assert -log_decay.median().item() == pytest.approx(rate(forget_bias), rel=0.15)


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(LOG_DECAYS.keys() - {"mamba", "attention_mamba", "rg_lru"}))
@pytest.mark.parametrize("forget_bias", [3.0, 8.0])
def test_without_an_input_gates_are_at_their_bias(name: str, forget_bias: float) -> None:
    """Mamba's and the RG-LRU's gates read the output of a convolution with biases."""
    model, _ = model_and_inputs(starting_at(name, forget_bias), "native")
    for mixer in model.mixers:
        log_decay = LOG_DECAYS[name](mixer, torch.zeros(1, 3, model.settings.d_model))
        torch.testing.assert_close(
            -log_decay, torch.full_like(log_decay, rate(forget_bias)), rtol=1e-3, atol=0
        )


@torch.no_grad()
@pytest.mark.parametrize("name", ["mamba", "mamba2", "mamba3"])
def test_writes_of_state_spaces_start_as_large_as_published(name: str) -> None:
    open_, published = (
        model_and_inputs(pattern, "native")[0] for pattern in (f"{name}[forget_bias=8]", name)
    )
    a, b = open_.mixers[0].state_dict(), published.mixers[0].state_dict()
    differ = {key for key in a if key not in b or not torch.equal(a[key], b[key])}
    assert differ == {{"mamba": "A_log", "mamba2": "decay.A_log", "mamba3": "decay.rate_bias"}[name]}


@pytest.mark.parametrize("name", LOG_DECAYS)
@pytest.mark.parametrize("end", [0, 1], ids=["shut", "open"])
def test_gradients_of_extreme_starts_are_finite(name: str, end: int) -> None:
    forget_bias = EXTREMES.get(name, (-MOST, MOST))[end]
    model, inputs = model_and_inputs(starting_at(name, forget_bias), "native", silent=False)
    positions = torch.arange(inputs.shape[1]).expand_as(inputs)
    loss = model(inputs, positions, inputs)
    loss.backward()
    assert loss.isfinite()
    gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    assert len(gradients) == len([*model.parameters()])
    assert [key for key, gradient in gradients.items() if not gradient.isfinite().all()] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "gla[forget_bias=31]",
        "gla[forget_bias=nan]",
        "gla[forget_bias=wide]",
        "gla[forget_bias=8,gate_bias=4]",
        "rfa[forget_bias=8]",
        "hgrn2[forget_bias=0]",
        "rwkv7[forget_bias=0]",
        "kda[forget_bias=-6,safe_decay=true]",
        "kda[forget_bias=-6,signed_decay=positive]",
        "kda[safe_decay=true,signed_decay=spread]",
        "momentum_deltanet[forget_bias=-2]",
        "mlstm[forget_bias=15]",
        "deltanet[forget_bias=8]",
        "deltaproduct[forget_bias=8]",
        "kda[strata=some]",
        "retnet[strata=false]",
    ],
)
def test_starts_that_no_gate_has_are_refused_in_a_sentence(pattern: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as refused:
        plan("mqar/quick", [pattern], device="cpu")
    assert str(refused.value) == snapshot


def places(decay: ScalarDecay) -> list[tuple[int, int]]:
    """The equal halves of both distributions that two heads have, in order."""
    a = (decay.A_log.exp() - 1) / 15
    dt = (F.softplus(decay.dt_bias).log() - math.log(1e-3)) / math.log(100)
    return [tuple(sorted((2 * each).floor().int().tolist())) for each in (a, dt)]  # type: ignore[misc]


def drawn(make: Any, count: int = 40) -> list[Any]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return [make() for _ in range(count)]


@torch.no_grad()
def test_without_strata_heads_are_drawn_alone() -> None:
    """Strata give one of two heads the larger half of A, and one that of the steps."""
    apart = [places(each) for each in drawn(lambda: ScalarDecay(4, 2))]
    alone = [places(each) for each in drawn(lambda: ScalarDecay(4, 2, DrawnGateSettings(strata=False)))]
    assert all(each == [(0, 1), (0, 1)] for each in apart)
    for distribution in range(2):
        assert {each[distribution] for each in alone} == {(0, 0), (0, 1), (1, 1)}
    many = drawn(lambda: ScalarDecay(4, 2000, DrawnGateSettings(strata=False)), 1)[0]
    assert many.A_log.exp().mean().item() == pytest.approx(8.5, rel=0.03)
    assert F.softplus(many.dt_bias).log().mean().item() == pytest.approx(math.log(0.01), rel=0.03)


@torch.no_grad()
@pytest.mark.parametrize("name", [n for n, m in MIXERS.items() if "strata" in m.Settings.model_fields])
def test_strata_change_what_gates_start_at(name: str) -> None:
    default = MIXERS[name].Settings.model_fields["strata"].default
    one, other = (
        model_and_inputs(f"{name}[strata={value}]", "native")[0].mixers[0].state_dict()
        for value in (default, not default)
    )
    differ = {key.rpartition(".")[2] for key in one if not torch.equal(one[key], other[key])}
    assert differ & {"A_log", "dt_bias", "log_step", "bias", "decay", "log_decay"}


@torch.no_grad()
def test_with_strata_dfw_has_a_gate_in_each_part() -> None:
    gate = drawn(lambda: UniformDecay(4, 2, 8, DrawnGateSettings(strata=True)), 1)[0]
    edge = 1 / 16
    parts = (gate.project.bias.sigmoid() - edge) / (1 - 2 * edge) * 16
    assert sorted(parts.floor().int().tolist()) == list(range(16))


def test_one_setting_reaches_every_layer_that_forgets() -> None:
    settings = {"model.forget_bias": 8}
    cell = plan("mqar/quick", ["gla+attention+hgrn2+fox"], device="cpu", settings=settings)[0]
    given = [getattr(layer.settings, "forget_bias", None) for layer in cell.model.layers]
    assert given == [8, None, 8, 8]


def test_layers_of_one_head_take_a_start() -> None:
    """Whatever the shape of what is drawn."""
    for name in ("gla", "kda", "mlstm", "rwkv7", "hgrn2"):
        cls: type[Mixer] = MIXERS[name]
        settings = cls.Settings.parse({"heads": 1, "forget_bias": 4}, where="model")
        assert cls(settings, LayerInfo(0, 1, D))(torch.randn(1, 3, D)).y.shape == (1, 3, D)


def section(title: str) -> str:
    return PAGE.split(f"{title}\n", 1)[1].split("\n#", 1)[0]


def test_the_page_has_every_variant_that_forgets() -> None:
    gated = {name for name, mixer in MIXERS.items() if "forget_bias" in mixer.Settings.model_fields}
    assert gated == {*LOG_DECAYS}
    for title in ("## Forget gates", "### Half-lives at the start"):
        assert set(re.findall(r"^\| `(\w+)`", section(title), re.MULTILINE)) == gated


@pytest.mark.parametrize("name", LOG_DECAYS)
def test_the_page_has_the_half_lives_of_today(name: str) -> None:
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", section("### Half-lives at the start"), re.MULTILINE)
    for cell, (least, median, most) in zip(row.split(" | "), half_lives(name), strict=True):
        shown = [float(number) for number in re.findall(r"[\d.]+", cell)]
        assert shown == pytest.approx([median, least, most] if len(shown) == 3 else [median], rel=0.06)


def test_the_page_says_what_eight_keeps() -> None:
    assert f"{math.log(2) / rate(8):,.0f}" == "2,067"
    assert PAGE.count("2,067") == 2
