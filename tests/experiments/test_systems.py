"""Named systems: their layers are as published, and their names stand wherever a model's name does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import UserError
from linbench.experiments import systems
from linbench.experiments.cell import Cell
from linbench.experiments.pattern import parse_pattern, split_models
from linbench.experiments.plan_models import has_heads
from linbench.experiments.registry import PLUGINS_VARIABLE, registry
from linbench.experiments.suite import Suite, expand
from linbench.experiments.system import BACKBONE, find, parse_layers, shipped
from tests.helpers.cells import plan
from tests.helpers.every_variant import tensors


def in_places(count: int, base: str, other: str, *places: int) -> list[str]:
    """The layers of a model: all of one kind, but in some places (from 1) another."""
    return [other if i + 1 in places else base for i in range(count)]


WINDOW = ",window"
ORDERS: dict[str, list[str]] = {
    # layer i, from 0, is attention where (i + 1) % 4 == 0
    "qwen3_next": ["gated_attention" if (i + 1) % 4 == 0 else "gated_deltanet" for i in range(4)],
    # three of KDA to one of MLA, without positions
    "kimi_linear": in_places(4, "kda", "mla,none", 4),
    # even layers, from 0, are Mamba, odd ones attention within a window
    "samba": ["attention" + WINDOW if i % 2 else "mamba" for i in range(2)],
    "griffin": ["rg_lru", "rg_lru", "attention" + WINDOW],
    # blocks of eight with attention at index 4, from 0, without positions
    "jamba": in_places(8, "mamba", "attention,none", 5),
    # the shared layer after every six of Mamba
    "zamba": ["attention,none" if (i + 1) % 7 == 0 else "mamba" for i in range(14)],
    # all tokens in the first, the middle and the last layer
    "hymba": in_places(7, "attention_mamba" + WINDOW, "attention_mamba", 1, 4, 7),
    "falcon_h1": ["attention_mamba2"],
    "minimax_01": in_places(8, "lightning", "attention", 8),
    # of 27 layers, from 0, Based is at 1, 6, ... and a window at 2, 7, ...
    "based_hybrid": [{1: "based", 2: "attention" + WINDOW}.get(i % 5, "base_conv") for i in range(27)][:5],
    # two of N layers: 2 and 2 + N / 2
    "h3_hybrid": in_places(8, "h3", "attention", 2, 2 + 8 // 2),
    # one rotary position for both kinds
    "transxssm": in_places(8, "mamba2,rope", "attention,rope", 8),
    "deltanet_swa": ["deltanet", "attention" + WINDOW],
    # two of N layers: 2 and N / 2 + 1
    "deltanet_two_global": in_places(8, "deltanet", "attention", 2, 8 // 2 + 1),
}
"""The order of layers of each system, with its kind of positions and whether it has a window."""

NATIVE: dict[str, dict[str, dict[str, Any]]] = {
    "qwen3_next": {
        "gated_deltanet": {"key_heads": 1, "output_gate": "swish", "qk_norm": "l2", "conv": 4},
        "gated_attention": {"output_gate": "sigmoid", "qk_norm": "rms_centred", "rope_fraction": 0.25},
        BACKBONE: {"norm": "rms_centred", "channel_mixer": "swiglu"},
    },
    "kimi_linear": {"kda": {"output_gate": "sigmoid"}, "mla": {"positions": "none"}},
    "griffin": {"rg_lru": {"output_gate": "gelu"}, "attention": {"kv_heads": 1, "rope_fraction": 0.5}},
    "zamba": {BACKBONE: {"tied": "attention", "channel_mixer": "own"}},
    "minimax_01": {
        "lightning": {"output_norm": "rms_all", "output_gate": "sigmoid", "conv": 0},
        "attention": {"rope_fraction": 0.5},
    },
    "transxssm": {"mamba2": {"positions": "rope"}, "attention": {"positions": "rope"}},
}
"""Gates, norms, positions and heads of systems as published."""

each_system = pytest.mark.parametrize("name", shipped())


def planned(model: str, form: str = "native", **settings: Any) -> Cell:
    given = {f"model.{name}": value for name, value in settings.items()}
    return plan("mqar/quick", [model], form=form, device="cpu", settings=given)[0]


def settings_of(cell: Cell, name: str) -> list[dict[str, Any]]:
    return [layer.settings.model_dump() for layer in cell.model.layers if layer.entry.name == name]


def test_every_system_has_an_order_to_be_held_to() -> None:
    assert sorted(ORDERS) == [*shipped()]


@each_system
def test_layers_stand_in_the_published_order(name: str) -> None:
    found = []
    for term in parse_layers(name):
        settings = dict(term.settings)
        positions = f",{settings['positions']}" if "positions" in settings else ""
        found.append(term.name + positions + WINDOW * ("window" in settings))
    assert found == ORDERS[name]


@pytest.mark.parametrize("name", NATIVE)
def test_the_native_form_has_published_settings(name: str) -> None:
    cell = planned(name)
    for model, wanted in NATIVE[name].items():
        rooms = [cell.model.backbone.model_dump()] if model == BACKBONE else settings_of(cell, model)
        assert all(room[setting] == value for room in rooms for setting, value in wanted.items())


@each_system
def test_a_file_names_models_alone(name: str) -> None:
    system, models = find(name), registry("model").entries
    terms = {term.name for term in parse_pattern(system.pattern)}
    assert terms <= models.keys()
    assert name not in models
    assert system.native.keys() <= {*terms, BACKBONE}
    assert all((system.title, system.about, system.differs, system.source))
    assert 2020 < system.year < 2030


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "h3_hybrid" else ()) for name in shipped()]
)
@torch.no_grad()
def test_a_system_is_carried_through_its_layers(name: str, relative_error: Any) -> None:
    cell = planned(name, d_model=16)
    model = cell.model.build(cell.task, seed=0).double()
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    ids = torch.randint(8, (2, 21))
    whole, _ = model.hidden(ids)
    states, parts = model.init_states(2, capacity=21), []
    for part in ids.split([5, 1, 15], dim=1):
        x, states = model.hidden(part, states)
        parts.append(x)
    assert relative_error(torch.cat(parts, dim=1), whole) < 1e-9
    size = model.state_size(21)
    assert size is not None
    assert size.total == sum(x.numel() // 2 for x in tensors(states) if x.is_floating_point())
    assert model.flops_per_token(21, 1) is not None


def test_a_system_has_the_identity_of_its_layers_and_its_own_label() -> None:
    whole = planned("qwen3_next")
    native = find("qwen3_next").native
    given = {f"{model}.{name}": value for model in native for name, value in native[model].items()}
    given = {name.removeprefix("backbone."): value for name, value in given.items()}
    written_out = planned("3xgated_deltanet+gated_attention", **given)
    assert whole.id == written_out.id
    assert (whole.model.label, written_out.model.label) == ("qwen3_next", "3xgated_deltanet+gated_attention")


def test_the_controlled_form_has_the_surroundings_of_all() -> None:
    cell = planned("qwen3_next", "controlled")
    assert cell.model.backbone.norm == "rms"
    assert {room["key_heads"] for room in settings_of(cell, "gated_deltanet")} == {None}
    assert cell.id == planned("3xgated_deltanet+gated_attention", "controlled").id
    # what defines the layers stays
    assert settings_of(planned("kimi_linear", "controlled"), "mla")[0]["positions"] == "none"
    assert settings_of(planned("samba", "controlled"), "attention")[0]["window"] == 16


def test_a_name_stands_in_patterns_and_lists() -> None:
    assert split_models("qwen3_next, deltanet") == ["qwen3_next", "deltanet"]
    assert [term.name for term in parse_layers("2xgriffin+gla")] == 2 * ["rg_lru", "rg_lru", "attention"] + [
        "gla"
    ]
    assert len(planned("2xqwen3_next").model.layers) == 8
    assert planned("2xqwen3_next").id == planned("qwen3_next", layers=8).id
    assert has_heads("griffin")
    suite = {"about": "a test", "tasks": ["mqar"], "models": ["samba", "griffin[window=8]"]}
    found = expand(Suite.parse(suite, where="suite"), device="cpu")
    assert [cell.model.label for cell in found.cells] == suite["models"]


def test_a_system_is_whole_whatever_number_of_layers_a_suite_has() -> None:
    assert [len(planned("griffin", layers=count).model.layers) for count in (1, 2, 3, 4, 7)] == [
        3,
        3,
        3,
        6,
        9,
    ]
    with pytest.raises(UserError, match=r"model\.layers = 2 is not a multiple"):
        planned("2xrg_lru+attention", layers=2)


def test_what_a_user_gives_comes_before_what_is_published() -> None:
    assert planned("qwen3_next", norm="rms").model.backbone.norm == "rms"
    assert {s["kv_heads"] for s in settings_of(planned("griffin", kv_heads=2), "attention")} == {2}
    ((one,), (other,)) = (
        settings_of(planned(name), "attention") for name in ("griffin[window=8]", "griffin[kv_heads=2]")
    )
    assert (one["window"], one["kv_heads"]) == (8, 1)
    assert (other["window"], other["kv_heads"]) == (16, 2)


def test_settings_in_brackets_are_for_all_layers_that_have_them() -> None:
    cell = planned("kimi_linear[heads=4,conv=0]")
    assert {s["heads"] for name in ("kda", "mla") for s in settings_of(cell, name)} == {4}
    cell = planned("kimi_linear[safe_decay=true]")
    assert all(s["safe_decay"] for s in settings_of(cell, "kda"))


@pytest.mark.parametrize(
    "model",
    ["griffin[windw=8]", "samba+zamba", "200xjamba", "h3_hybrid[window=0]", "kimi_linear[conv]"],
)
def test_what_no_system_is_or_has_is_refused_in_a_sentence(model: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(UserError) as refused:
        planned(model)
    assert str(refused.value) == snapshot


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of systems beside the shipped one."""
    monkeypatch.setattr(systems, "__path__", [*systems.__path__, str(tmp_path)])
    shipped.cache_clear()
    yield tmp_path
    shipped.cache_clear()


def test_a_file_is_enough(folder: Path) -> None:
    (folder / "mine.yaml").write_text(
        "{title: Mine, year: 2026, source: none, about: A test., pattern: gla+rnn, differs: All.}"
    )
    assert [layer.entry.name for layer in planned("2xmine").model.layers] == ["gla", "rnn"] * 2


@pytest.mark.parametrize(
    "text",
    [
        "{title: Mine, year: 2026, source: none, about: A test., pattern: gla, differs: All., natve: {}}",
        "{title: Mine, year: 2026, source: none, about: A test., pattern: gla}",
        "[gla]",
    ],
)
def test_a_file_that_is_no_system_is_refused(folder: Path, text: str, snapshot: SnapshotAssertion) -> None:
    (folder / "mine.yaml").write_text(text)
    with pytest.raises(UserError) as refused:
        find("mine")
    assert str(refused.value).replace(str(folder), "FOLDER") == snapshot


def test_a_model_of_ones_own_does_not_take_a_systems_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n\nclass Mine(nn.Identity):\n    name = 'samba'\n"
    )
    monkeypatch.setenv(PLUGINS_VARIABLE, str(tmp_path))
    registry.cache_clear()
    found = registry("model")
    registry.cache_clear()
    assert "samba" not in found.entries
    (problem,) = found.problems
    assert problem.name == "samba"
    assert "system" in problem.reason


def test_a_misspelt_system_is_told_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'griffin'"):
        planned("grifin")
    with pytest.raises(UserError, match="did you mean 'griffin'"):
        find("grifin")


def test_systems_that_disagree_are_joined_by_a_setting() -> None:
    assert planned("samba+zamba", channel_mixer="none", tied="none").model.backbone.channel_mixer == "none"
