"""Cases of layers: their questions, their shapes, and their identity."""

from dataclasses import replace
from pathlib import Path

import pytest

from linbench.bench import presets
from linbench.bench.case import PeerVersion
from linbench.bench.decode import cases as decode_cases
from linbench.bench.forms import cases as form_cases
from linbench.bench.layer import LayerCase
from linbench.bench.length import cases as length_cases
from linbench.bench.prefill import cases as prefill_cases
from linbench.bench.presets import PRESETS, layer_cases, resolve_preset
from linbench.common.errors import UserError
from linbench.experiments.registry import registry
from tests.helpers.bench import PLAIN, SMALL, a_case


def test_shapes() -> None:
    assert resolve_preset("tiny", lengths=[512, 64, 64], tokens=1024, heads=1)._asdict() == {
        **PRESETS["tiny"]._asdict(),
        "lengths": (64, 512),
        "tokens": 1024,
        "heads": 1,
    }
    assert (SMALL.batch(4), SMALL.batch(8), SMALL.batch(12)) == (4, 2, 1)
    with pytest.raises(UserError, match="did you mean 'tiny'"):
        resolve_preset("tinny")
    with pytest.raises(UserError, match="a batch of 16 tokens does not hold a sequence of 32"):
        resolve_preset("tiny", lengths=[32], tokens=16)


def test_what_each_verb_asks() -> None:
    one = layer_cases(["deltanet"], SMALL, device="cpu")

    def asked(found: list[LayerCase]) -> list[tuple[str, int, int]]:
        return [(case.question, case.batch, case.length) for case in found]

    assert asked(length_cases(one, SMALL)) == [
        (question, batch, length)
        for batch, length in ((4, 4), (2, 8))
        for question in ("train", "prefill", "memory")
    ]
    assert asked(prefill_cases(one, SMALL)) == [
        ("prefill", 1, 4),
        ("prefill", 4, 4),
        ("prefill", 1, 8),
        ("prefill", 2, 8),
    ]
    assert asked(decode_cases(one, SMALL)) == [
        ("decode", 1, 4),
        ("decode", 3, 4),
        ("decode", 1, 8),
        ("decode", 3, 8),
    ]
    found = form_cases(lambda preset: layer_cases(["deltanet"], preset, device="cpu"), SMALL, [4, 16])
    assert [case.backend for case in found[:3]] == ["reference", "scan", "chunkwise"]
    assert [case.settings.heads for case in found] == [4] * 6 + [1] * 6
    with pytest.raises(UserError, match="--head-dims 5 does not divide --d-model 16"):
        form_cases(lambda preset: [], SMALL, [5])


@pytest.mark.slow
def test_layers_have_the_width_and_the_heads_of_the_preset_unless_told_otherwise() -> None:
    found = layer_cases([], SMALL, device="cpu")
    assert {case.mixer for case in found} >= {"attention", "deltanet", "lstm", "base_conv", "rwkv7"}
    assert {case.width for case in found} == {16}
    assert {case.settings.heads for case in found if "heads" in type(case.settings).model_fields} == {2}
    (own,) = layer_cases(
        ["deltanet"], SMALL, settings={"model.heads": 4, "model.d_model": 32}, device="cpu", form="controlled"
    )
    assert (own.settings.heads, own.width, own.cell.model.form) == (4, 32, "controlled")
    controlled = {case.mixer for case in layer_cases([], SMALL, device="cpu", form="controlled")}
    assert "lstm" in controlled
    assert "base_conv" not in controlled
    several = layer_cases(["deltanet+attention", "griffin", "2xgla"], SMALL, device="cpu")
    assert [(case.label, case.mixer) for case in several] == [
        ("deltanet+attention: deltanet", "deltanet"),
        ("deltanet+attention: attention", "attention"),
        ("griffin: rg_lru", "rg_lru"),
        ("griffin: attention", "attention"),
        ("2xgla", "gla"),
    ]
    assert several[3].settings.window == 16
    with pytest.raises(UserError, match="did you mean 'sdpa'"):
        layer_cases(["deltanet"], SMALL, device="cpu", peer="sdp")


def test_of_all_layers_those_without_heads_cannot_be_given_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(presets, "plan", lambda run: asked.extend(run.models) or [])
    layer_cases([], SMALL, settings={"model.state_floats": 8192}, device="cpu", form="controlled")
    assert "deltanet" in asked
    assert "lstm" not in asked


def test_layers_of_a_suite_are_as_its_cells_have_them(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "{about: Mine., tasks: [{task: mqar/quick, set: {model.d_model: 32}}, {task: mqar/quick, set:"
        " {model.d_model: 64, protocol.lr: 0.01}}, {task: mqar/quick, set: {model.d_model: 64}}], models:"
        " [deltanet, gla, deltanet+attention], form: controlled, seeds: 0-1, set: {model.heads: 4}}"
    )
    found = layer_cases([], SMALL, suite=str(path), device="cpu")
    assert [(case.label, case.width, case.settings.heads, case.cell.model.form) for case in found] == [
        (model, width, 4, "controlled") for width in (32, 64) for model in ("deltanet", "gla")
    ]
    assert [case.label for case in layer_cases(["gla"], SMALL, suite=str(path), device="cpu")] == [
        "gla",
        "gla",
    ]
    assert {
        case.cell.model.form for case in layer_cases([], SMALL, suite=str(path), form="native", device="cpu")
    } == {"native"}


def test_an_identity_is_all_that_names_a_result_and_nothing_else() -> None:
    case = a_case()
    assert case.identity["layer"]["mixer"] == "deltanet"
    assert case.identity["layer"]["kernel"]["matrix_state"] > 0
    others = [
        replace(case, **change)
        for change in (
            {"question": "prefill"},
            {"batch": 3},
            {"length": 9},
            {"precision": "bf16"},
            {"backend": "scan"},
            {"peer": PeerVersion("sdpa", "1.0")},
        )
    ]
    others += [
        replace(others[-1], peer=PeerVersion("sdpa", "1.1")),
        a_case("gated_deltanet"),
        a_case("deltanet[neg_eigval=true]"),
    ]
    assert len({one.id for one in [case, *others]}) == 1 + len(others)
    assert replace(case, repeats=7).id == case.id


def test_the_source_of_a_plugin_is_part_of_it(tmp_path: Path) -> None:
    ids = set()
    for source in (PLAIN, PLAIN + "\n# another\n"):
        (tmp_path / "mine.py").write_text(source)
        registry.cache_clear()
        ids.add(a_case(f"{tmp_path / 'mine.py'}:Mine").id)
    registry.cache_clear()
    assert len(ids) == 2
