"""Weights before training: by default what they always were, and otherwise what `silent` and `init` say."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor, nn

from linbench.common.errors import UserError
from linbench.common.task_io import IO
from linbench.experiments.module_mixer import wrap
from linbench.models.backbone import Backbone, BackboneSettings, Layer
from linbench.models.blocks.linear import Affine, Linear
from tests.helpers.cells import plan
from tests.helpers.initial_weights import MIXERS, fingerprint, models
from tests.helpers.models import D
from tests.helpers.starting_gates import LOG_DECAYS, NEEDED, model_and_inputs

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/initial_weights.json").read_text(encoding="utf-8"))


def test_all_variants_have_a_golden_start() -> None:
    assert [*GOLDEN] == models()


@pytest.mark.parametrize("model", GOLDEN)
def test_fresh_models_start_as_they_always_did(model: str) -> None:
    assert fingerprint(model) == pytest.approx(GOLDEN[model], rel=1e-6, abs=1e-4)


@pytest.mark.parametrize("name", MIXERS)
def test_every_variant_is_sketched_without_memory_for_most_of_its_numbers(name: str) -> None:
    cell = plan("mqar/quick", [name], device="cpu")[0]
    assert any(parameter.is_meta for parameter in cell.model.sketch(cell.task).parameters())


def test_init_has_two_values(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as refused:
        plan("mqar/quick", ["gla"], device="cpu", settings={"model.init": "publishd"})
    assert str(refused.value) == snapshot


def silenced(name: str) -> str:
    return {"rwkv4": "output", "gau": "readout.linear"}.get(
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
    last |= {key for key in silent if key.endswith("beside.readout.linear.weight")}
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
    "longhorn": {"step.up"},
    "mamba": {"step.up"},
    "attention_mamba": {"beside.step.up"},
    "lstm": {"project"},
    "gru": {"project"},
    "rnn": {"project"},
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
    layers = [Layer(wrap(Mine), wrap(Mine).Settings())]
    one, other = (
        Backbone(BackboneSettings(d_model=D, init=init), layers, IO(9, 9), seed=0).state_dict()
        for init in ("default", "published")
    )
    assert torch.equal(one["mixers.0.module.map.weight"], other["mixers.0.module.map.weight"])
    assert not torch.equal(one["embedding.weight"], other["embedding.weight"])


@pytest.mark.parametrize("name", [n for n in LOG_DECAYS if n not in ("fox", "path_fox", *NEEDED)])
def test_only_what_is_set_is_part_of_an_identity(name: str) -> None:
    def identity(pattern: str, **settings: Any) -> str:
        return plan("mqar/quick", [pattern], device="cpu", settings=settings)[0].id

    plain = identity(name)
    defaults = {"model.init": "default", "model.silent": True}
    assert identity(f"{name}[forget_bias=null]", **defaults) == plain
    others = [identity(f"{name}[forget_bias=8]"), identity(name, **{"model.init": "published"})]
    others += [identity(f"{name}[silent=false]"), identity(name, **{"model.silent": False})]
    assert len({plain, *others}) == 5
