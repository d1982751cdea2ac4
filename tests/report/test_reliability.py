"""The table of reliability, and the sentence in captions."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.report.data import ReportData
from linbench.report.style.wording import training
from linbench.report.tables.reliability import lines, reliability_tables
from linbench.results.comparison import comparisons

Make = Callable[..., Any]
MODELS = ("linear_attention", "deltanet", "gla", "kda", "mamba2", "hgrn2")


def seeds(make: Make, scores: Sequence[float], noise: float, **more: Any) -> list[Any]:
    """Return three seeds of each model around its score."""
    return [
        make(label, seed, score + noise * (seed - 1), **more)
        for label, score in zip(MODELS, scores, strict=True)
        for seed in range(3)
    ]


@pytest.fixture
def results(a_result: Make) -> list[Any]:
    """A cell that tells models apart, another of its task in the opposite order, and one that is luck."""
    rising = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    return [
        *seeds(a_result, rising, 0.01),
        *seeds(a_result, rising[::-1], 0.01, kv_pairs=16),
        *seeds(a_result, rising, 0.3, kv_pairs=32),
    ]


def test_cells_stand_as_measurements(results: list[Any], snapshot: SnapshotAssertion) -> None:
    (table,) = reliability_tables(ReportData(results))
    assert table.body() == snapshot
    assert [record["tau_same_task"] for record in table.to_records()] == pytest.approx([0, -1, 0])


def test_a_cell_of_luck_is_named_in_its_captions(results: list[Any], snapshot: SnapshotAssertion) -> None:
    found = lines(comparisons(results))
    assert [line.found.reliable for line in found] == [True, True, False]
    words = [training(line.comparison).partition("Reliability") for line in found]
    assert [sentence for _, sentence, _ in words] == ["", "", "Reliability"]
    assert words[-1][2] == snapshot


def test_the_order_at_the_base_budget_is_compared_with_that_at_the_last(climb: Make) -> None:
    rising = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    ladders = [
        rung
        for label, score in zip(MODELS, rising, strict=True)
        for seed in range(2)
        for rung in climb(label, seed, [0.7 - score, score + 0.01 * seed], "cap")
    ]
    (line,) = lines(comparisons(ladders))
    assert line.by_budget is not None
    assert line.by_budget.tau == -1


def test_few_models_have_no_table(results: list[Any]) -> None:
    few = [result for result in results if result["label"] in MODELS[:4]]
    assert reliability_tables(ReportData(few)) == []


def test_the_order_at_the_shortest_tested_length_is_compared_with_that_at_the_longest(a_result: Make) -> None:
    found = seeds(a_result, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 0.01)
    for one in found:
        short = one["metrics"]["accuracy"]
        one["tests"] = [
            {"seq_len": length, "chance": 0.1, "metrics": {"accuracy": score}, "slices": {}}
            for length, score in ((64, 1 - short), (16, short), (32, 0.5))
        ]
        one["cell"]["task"]["test"] = [{"settings": {"seq_len": length}} for length in (64, 16, 32)]
    (line,) = lines(comparisons(found))
    assert line.by_length is not None
    assert line.by_length.tau == pytest.approx(-1)
