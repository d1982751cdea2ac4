"""The share of the first token among the metrics of tests."""

from typing import Any

import pytest

from linbench.engine.first_token import NAME
from linbench.experiments.cell import Cell
from tests.helpers.cells import plan
from tests.helpers.groups import FEW, TINY, results

ASKED = {"protocol.first_token": True}


def cells(model: str, seeds: list[int], test: Any = (), **settings: Any) -> list[Cell]:
    given = TINY | FEW | {"task.power_a": 1} | settings
    return plan("mqar", [model], device="cpu", seeds=seeds, settings=given, test=test)


def test_it_is_measured_for_every_replica_and_layer_if_asked() -> None:
    found = [result["metrics"] for result in results(cells("deltanet+attention", [0, 1], **ASKED))]
    for metrics in found:
        assert 0 < metrics[NAME] < 1
        assert {name for name in metrics if NAME in name} == {NAME, f"{NAME}_1"}
        assert metrics[f"{NAME}_1"] == metrics[NAME]
    assert found[0][NAME] != found[1][NAME]
    (alone,) = results(cells("deltanet+attention", [1], **ASKED))
    assert alone["metrics"][NAME] == pytest.approx(found[1][NAME], rel=1e-4)


def test_other_metrics_and_identities_are_what_they_are_without() -> None:
    (asked,), (plain,) = (results(cells("attention", [0], **settings)) for settings in (ASKED, {}))
    rest = {name: value for name, value in asked["metrics"].items() if NAME not in name}
    assert rest == plain["metrics"]
    assert len(asked["metrics"]) == len(rest) + 3
    (cell,), (same,) = cells("attention", [0]), cells("attention", [0], **{"protocol.first_token": False})
    assert cell.id == same.id != cells("attention", [0], **ASKED)[0].id


def test_each_test_has_its_own() -> None:
    lengths = [{}, {"seq_len": 32}]
    (result,) = results(cells("attention", [0], lengths, **ASKED))
    short, long = (test["metrics"][NAME] for test in result["tests"])
    assert short > long  # an even share of more tokens is smaller
    assert result["metrics"][NAME] == pytest.approx((short + long) / 2)


def test_layers_without_attention_have_none() -> None:
    (result,) = results(cells("deltanet", [0], **ASKED))
    assert not any(NAME in name for name in result["metrics"])
