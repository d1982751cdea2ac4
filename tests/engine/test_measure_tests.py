"""Cells with several tests."""

from collections.abc import Sequence
from typing import Any

import pytest

from linbench.engine.record import new_record
from linbench.experiments.cell import Cell
from linbench.results.rescore import UNSCORED, with_current_chance
from linbench.results.scores import accuracies_by_test, accuracy, validation_levels
from tests.helpers.cells import plan
from tests.helpers.groups import FEW, TINY, results

TESTS = [{}, {"seq_len": 32, "kv_pairs": 4}, {"kv_pairs": 4}]


def examined(test: Sequence[dict[str, Any]], seeds: Sequence[int], **settings: Any) -> list[Cell]:
    return plan(
        "mqar",
        ["deltanet"],
        device="cpu",
        seeds=seeds,
        settings=TINY | FEW | {"task.power_a": 1} | settings,
        test=test,
    )


@pytest.mark.parametrize("seeds", [pytest.param([0], marks=pytest.mark.slow), [0, 1]])
def test_several_tests_find_what_each_finds_alone(seeds: list[int]) -> None:
    together = results(examined(TESTS, seeds))
    alone = [results(examined([test], seeds)) for test in TESTS]
    for r, result in enumerate(together):
        assert [test["metrics"] for test in result["tests"]] == [one[r]["metrics"] for one in alone]
        assert [test["slices"] for test in result["tests"]] == [one[r]["slices"] for one in alone]
        assert (
            [test["chance"] for test in result["tests"]]
            == pytest.approx([1 / 2, 1 / 4, 1 / 4])
            == [one[r]["chance"] for one in alone]
        )
        assert [(test["settings"]["seq_len"], test["settings"]["kv_pairs"]) for test in result["tests"]] == [
            (16, 2),
            (32, 4),
            (16, 4),
        ]
        assert not any("tests" in one[r] for one in alone)
        assert result["slices"] == {}


@pytest.mark.slow
def test_all_tests_are_worth_their_mean() -> None:
    (result,) = results(examined(TESTS, [0]))
    alone = [results(examined([test], [0]))[0] for test in TESTS]
    for name in ("accuracy", "nll"):
        assert result["metrics"][name] == pytest.approx(sum(one["metrics"][name] for one in alone) / 3)
        for point, *others in zip(result["curve"], *(one["curve"] for one in alone), strict=True):
            assert point[name] == pytest.approx(sum(other[name] for other in others) / 3)
    assert result["chance"] == pytest.approx((1 / 2 + 1 / 4 + 1 / 4) / 3)
    counted = [sum(test["slices"]["slot"]["accuracy"]["weight"]) for test in result["tests"]]
    assert counted == [64 * 2, 64 * 4, 64 * 4], "each test has as many examples as the protocol says"
    pooled = [
        (sum(test["slices"]["slot"]["accuracy"]["sum"]) / pairs, 64)
        for test, pairs in zip(result["tests"], (2, 4, 4), strict=True)
    ]
    assert result["metrics"]["accuracy"] == pytest.approx(
        sum(right for right, _ in pooled) / sum(examples for _, examples in pooled)
    )


def test_a_record_holds_the_optimum_the_mean_over_all_tests() -> None:
    tests = [{"task.points": points} for points in (8, 16)]
    alone = [
        plan("regression", ["deltanet"], device="cpu", settings=test)[0].task.optimum() for test in tests
    ]
    assert alone[0] < alone[1] < 1
    test = [{"points": points} for points in (8, 16)]
    (cell,) = plan("regression", ["deltanet"], device="cpu", test=test)
    assert new_record(cell, 1, None)["optimum"] == pytest.approx(sum(alone) / 2)
    (exact,) = examined([{}], [0])
    assert new_record(exact, 1, None)["optimum"] == 1


def test_sizes_are_told_at_the_longest_test() -> None:
    attention = plan("mqar", ["attention"], device="cpu", settings=TINY | FEW, test=TESTS)
    (result,), (longest,) = (
        results(attention),
        results(plan("mqar", ["attention"], device="cpu", settings=TINY | FEW, test=TESTS[1:2])),
    )
    assert result["model"] == longest["model"]
    assert result["model"]["state"]["cache"] == 2 * 32 * 2 * 16


def test_what_diverges_is_at_chance_in_every_test() -> None:
    (result,) = results(examined(TESTS, [0], **{"protocol.lr": 1e30}))
    assert result["status"] == "diverged"
    assert accuracy(result) == pytest.approx(1 / 3)
    assert accuracies_by_test(result) == pytest.approx([1 / 2, 1 / 4, 1 / 4])


def test_longer_tests_can_be_left_out_of_validation() -> None:
    """The middle one of these is longer than training: it is tested on and validates nothing."""
    trained = {"protocol.validate_on": "trained"}
    (result,) = results(examined(TESTS, [0], **trained))
    (within,) = results(examined([TESTS[0], TESTS[2]], [0]))
    (whole,) = results(examined(TESTS, [0]))
    assert result["curve"] == within["curve"] != whole["curve"]
    assert result["metrics"] == whole["metrics"]
    assert result["tests"] == whole["tests"]
    assert result["id"] != whole["id"]
    assert result["validation"] == {
        "tests": [0, 2],
        "chance": pytest.approx((1 / 2 + 1 / 4) / 2),
        "optimum": 1,
    }
    assert validation_levels(result).chance == pytest.approx(within["chance"])
    assert "validation" not in whole


@pytest.mark.parametrize("tests", [[{}, {"kv_pairs": 4}], [{"seq_len": 32}, {"seq_len": 64}], []])
def test_a_choice_of_tests_that_leaves_none_out_changes_no_identity(tests: list[dict[str, Any]]) -> None:
    (whole,), (trained,) = (
        examined(tests, [0], **{"protocol.validate_on": choice}) for choice in ("all", "trained")
    )
    assert trained.id == whole.id
    assert trained.validated_on == trained.tested_on
    assert "validation" not in new_record(trained, 1, None)


def test_chance_of_today_is_also_that_of_what_was_validated_on() -> None:
    (cell,) = examined(TESTS, [0], **{"protocol.validate_on": "trained"})
    record = new_record(cell, 1, None)
    older: Any = {**record, "scoring": 0, "validation": {**record["validation"], "chance": 0.9}}
    assert with_current_chance(older)["validation"] == record["validation"]
    beyond: Any = {**older, "validation": {**older["validation"], "tests": [3]}}
    assert with_current_chance(beyond)["marks"] == [UNSCORED]
