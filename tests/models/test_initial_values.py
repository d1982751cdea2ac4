"""What models start at: by default what they always did, and otherwise what the settings of the start say."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from syrupy.assertion import SnapshotAssertion
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.models.base import LayerInfo, Mixer
from linbench.models.blocks.gates import ScalarDecay, UniformDecay
from linbench.models.blocks.linear import Affine, Linear
from linbench.models.blocks.starting_gates import MOST, DrawnGateSettings
from tests.helpers.cells import plan
from tests.helpers.initial_weights import MIXERS, fingerprint, models
from tests.helpers.models import D
from tests.helpers.starting_gates import LOG_DECAYS, model_and_inputs, starting_at, starting_decays

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/initial_weights.json").read_text(encoding="utf-8"))
LOWEST = {"hgrn2": 0.5, "rwkv7": 0.5}
"""The lowest start that is tried with gates that are bounded from below."""
EXTREMES = {"hgrn2": (0.01, MOST), "rwkv7": (0.5, MOST), "mlstm": (-14.9, 14.9)}
MANY_HEADS = "heads=16"
"""So many that a gate per head has a median that says something."""


def rate(forget_bias: float) -> float:
    return math.log1p(math.exp(-forget_bias))


def test_all_variants_have_a_golden_start() -> None:
    assert [*GOLDEN] == models()


@pytest.mark.parametrize("model", GOLDEN)
def test_fresh_models_start_as_they_always_did(model: str) -> None:
    assert fingerprint(model) == pytest.approx(GOLDEN[model], rel=1e-6, abs=1e-4)


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
@pytest.mark.parametrize("name", sorted(LOG_DECAYS.keys() - {"mamba"}))
@pytest.mark.parametrize("forget_bias", [3.0, 8.0])
def test_without_an_input_gates_are_at_their_bias(name: str, forget_bias: float) -> None:
    """Mamba's gates read the output of a convolution with biases."""
    model, _ = model_and_inputs(starting_at(name, forget_bias), "native")
    for mixer in model.mixers:
        log_decay = LOG_DECAYS[name](mixer, torch.zeros(1, 3, model.settings.d_model))
        torch.testing.assert_close(
            -log_decay, torch.full_like(log_decay, rate(forget_bias)), rtol=1e-3, atol=0
        )


@torch.no_grad()
@pytest.mark.parametrize("name", ["mamba", "mamba2"])
def test_writes_of_state_spaces_start_as_large_as_published(name: str) -> None:
    open_, published = (
        model_and_inputs(pattern, "native")[0] for pattern in (f"{name}[forget_bias=8]", name)
    )
    a, b = open_.mixers[0].state_dict(), published.mixers[0].state_dict()
    differ = {key for key in a if not torch.equal(a[key], b[key])}
    assert differ == {"A_log" if name == "mamba" else "decay.A_log"}


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


def test_init_has_two_values(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as refused:
        plan("mqar/quick", ["gla"], device="cpu", settings={"model.init": "publishd"})
    assert str(refused.value) == snapshot


def places(decay: ScalarDecay) -> list[tuple[int, int]]:
    """Which of two equal parts of each distribution the two heads have, in order."""
    a = (decay.A_log.exp() - 1) / 15
    dt = (F.softplus(decay.dt_bias).log() - math.log(1e-3)) / math.log(100)
    return [tuple(sorted((2 * each).floor().int().tolist())) for each in (a, dt)]  # type: ignore[misc]


def drawn(make: Any, count: int = 40) -> list[Any]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return [make() for _ in range(count)]


@torch.no_grad()
def test_without_strata_heads_are_drawn_alone() -> None:
    """With them, of two heads one has the larger half of A and one of the steps."""
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
    assert differ & {"A_log", "dt_bias", "log_step", "bias"}


@torch.no_grad()
def test_with_strata_dfw_has_a_gate_in_each_part() -> None:
    gate = drawn(lambda: UniformDecay(4, 2, 8, DrawnGateSettings(strata=True)), 1)[0]
    edge = 1 / 16
    parts = (gate.project.bias.sigmoid() - edge) / (1 - 2 * edge) * 16
    assert sorted(parts.floor().int().tolist()) == list(range(16))


def silenced(name: str) -> str:
    return {"rwkv4": "output"}.get(
        name, "readout.linear" if "heads" in MIXERS[name].Settings.model_fields else "linear"
    )


@torch.no_grad()
@pytest.mark.parametrize("name", [n for n, m in MIXERS.items() if "silent" in m.Settings.model_fields])
def test_a_layer_that_is_not_silent_speaks_and_starts_alike_otherwise(name: str) -> None:
    silent, loud = (
        model_and_inputs(name, "native", silent=value, channel_mixer="own")[0].state_dict()
        for value in (True, False)
    )
    differ = {key for key in silent if not torch.equal(silent[key], loud[key])}
    last = {f"mixers.{i}.{silenced(name)}.weight" for i in range(2)}
    channels = {
        key for key in silent if "channel_mixers" in key and key.endswith(("down.weight", "value.weight"))
    }
    biases = {key.replace("weight", "bias") for key in last} & silent.keys()
    assert differ == last | channels | biases
    assert not any(silent[key].any() for key in differ)


def test_silent_in_a_pattern_is_of_that_layer_alone() -> None:
    model, _ = model_and_inputs("gla[silent=false]+gla", "native")
    assert [bool(mixer.readout.linear.weight.any()) for mixer in model.mixers] == [True, False]
    assert not model.channel_mixers["0"].down.weight.any()


OWN_START = {
    "mamba": {"step.up"},
    "lstm": {"project"},
    "mlstm": {"forget", "input"},
    "rwkv4": {"receptance", "key", "value"},
    "rwkv6": {"decay.down", "decay.up", "shift.down", *(f"shift.up.{i}" for i in range(5))},
    "rwkv7": {
        "project.linear",
        *(f"{gate}.{way}" for gate in ("w", "a", "readout.gate") for way in ("down", "up")),
    },
}
"""Maps whose initial values are their variant's own, whatever `init` is."""


@torch.no_grad()
@pytest.mark.parametrize("name", MIXERS)
def test_published_backbones_start_small(name: str) -> None:
    default, model = (
        model_and_inputs(name, "native", init=init, silent=False, d_model=128)[0]
        for init in ("default", "published")
    )
    maps = {key: part for key, part in model.mixers[0].named_modules() if isinstance(part, Linear | Affine)}
    same = {
        key for key in maps if torch.equal(maps[key].weight, default.mixers[0].get_parameter(f"{key}.weight"))
    }
    assert same == OWN_START.get(name, set())
    assert all(0.017 < part.weight.std() < 0.023 for key, part in maps.items() if key not in same)
    for part in (model.embedding, model.channel_mixers["0"].up, model.channel_mixers["0"].down):
        assert 0.019 < part.weight.std() < 0.021


@torch.no_grad()
def test_published_backbones_keep_what_is_silent_and_the_biases_of_gates() -> None:
    model, _ = model_and_inputs("gla[forget_bias=8]+h3", "native", init="published")
    gla, h3 = model.mixers
    assert not gla.readout.linear.weight.any()
    assert (gla.decay.project.up.bias > 5).all()
    assert not h3.project.bias.any()
    assert 0.018 < h3.project.weight.std() < 0.022


@torch.no_grad()
def test_heads_and_embeddings_of_vectors_start_small_too() -> None:
    settings = {"model.init": "published", "model.d_model": 128, "model.tie_embeddings": False}
    for task, kinds in (("mqar", nn.Embedding), ("regression", nn.Linear), ("compression", nn.Embedding)):
        cell = plan(task, ["attention"], settings=settings, device="cpu")[0]
        model = cell.model.build(cell.task, seed=0)
        decoder = [] if model.decoder is None else [model.decoder.layers[1], model.decoder.layers[4]]
        assert isinstance(model.embedding, kinds)
        for part in (model.embedding, model.head, *decoder):
            assert 0.018 < part.weight.std() < 0.022


def test_no_part_of_a_published_backbone_starts_differently_for_what_the_others_are() -> None:
    one, other = (
        model_and_inputs(p, "native", init="published")[0].state_dict() for p in ("gla+gla", "gla+kda")
    )
    same = [key for key in one if not key.startswith("mixers.1.")]
    assert all(torch.equal(one[key], other[key]) for key in same)


class Mine(nn.Module):
    """A user's module with a map of its own."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.map = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.map(x)


def test_a_users_own_maps_start_as_the_user_says() -> None:
    from linbench.common.task_io import IO
    from linbench.experiments.module_mixer import wrap
    from linbench.models.backbone import Backbone, BackboneSettings, Layer

    layers = [Layer(wrap(Mine), wrap(Mine).Settings())]
    one, other = (
        Backbone(BackboneSettings(d_model=D, init=init), layers, IO(9, 9), seed=0).state_dict()
        for init in ("default", "published")
    )
    assert torch.equal(one["mixers.0.module.map.weight"], other["mixers.0.module.map.weight"])
    assert not torch.equal(one["embedding.weight"], other["embedding.weight"])


@pytest.mark.parametrize("name", [n for n in LOG_DECAYS if n not in ("fox", "rfa")])
def test_only_what_is_set_is_part_of_an_identity(name: str) -> None:
    def identity(pattern: str, **settings: Any) -> str:
        return plan("mqar/quick", [pattern], device="cpu", settings=settings)[0].id

    plain = identity(name)
    defaults = {"model.init": "default", "model.silent": True}
    assert identity(f"{name}[forget_bias=null]", **defaults) == plain
    others = [identity(f"{name}[forget_bias=8]"), identity(name, **{"model.init": "published"})]
    others += [identity(f"{name}[silent=false]"), identity(name, **{"model.silent": False})]
    assert len({plain, *others}) == 5


def test_one_setting_reaches_every_layer_that_forgets() -> None:
    settings = {"model.forget_bias": 8}
    cell = plan("mqar/quick", ["gla+attention+hgrn2+fox"], device="cpu", settings=settings)[0]
    given = [getattr(layer.settings, "forget_bias", None) for layer in cell.model.layers]
    assert given == [8, None, 8, 8]


def test_layers_of_one_head_take_a_start(randomise: Any) -> None:
    """Whatever the shape of what is drawn."""
    for name in ("gla", "kda", "mlstm", "rwkv7", "hgrn2"):
        cls: type[Mixer] = MIXERS[name]
        settings = cls.Settings.parse({"heads": 1, "forget_bias": 4}, where="model")
        assert cls(settings, LayerInfo(0, 1, D))(torch.randn(1, 3, D)).y.shape == (1, 3, D)
