"""The mark `undertrained`, judged by rungs where results are read."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from linbench.results.comparison import comparisons
from linbench.results.record import UNDERTRAINED
from linbench.results.schema import Result
from linbench.results.undertrained import judged
from tests.helpers.records import a_point


@pytest.fixture
def budgets(a_result: Callable[..., Result]) -> Callable[..., list[Any]]:
    """Results of one cell at a budget, twice that, and so on: of these accuracies, with equal losses."""

    def make(accuracies: Sequence[float], marks: Sequence[str] = (), **protocol: Any) -> list[Any]:
        found: list[Any] = []
        for doublings, accuracy in enumerate(accuracies):
            one: Any = a_result(
                "gla", score=accuracy, marks=list(marks), curve=[a_point(accuracy) | {"nll": 1.0}]
            )
            settings = one["cell"]["protocol"]["settings"]
            given = {"tokens": 1000 << doublings, **protocol}
            cell = one["cell"] | {"protocol": {"version": 1, "settings": settings | given}}
            found.append(one | {"cell": cell, "id": f"{protocol} {doublings}"})
        return found

    return make


def marked(results: Sequence[Result]) -> list[bool]:
    return [UNDERTRAINED in result["marks"] for result in judged(results)]


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ([0.5], [False]),
        ([0.5, 0.7], [False, True]),
        ([0.5, 0.5], [False, True]),
        ([0.5, 0.5, 0.5], [False, True, False]),
        ([0.5, 0.7, 0.7], [False, True, True]),
        ([0.5, 0.996], [False, False]),
        ([0.125, 0.125, 0.125], [False, True, True]),
    ],
)
def test_a_result_is_marked_if_half_its_budget_shows_that_it_still_learns(
    budgets: Callable[..., list[Any]], accuracies: list[float], expected: list[bool]
) -> None:
    assert marked(budgets(accuracies)) == expected
    assert marked(budgets(accuracies)[::-1])[::-1] == expected


def test_what_older_versions_marked_is_judged_anew_and_other_marks_stay(
    budgets: Callable[..., list[Any]],
) -> None:
    found = judged(budgets([0.5, 0.7], marks=["undertrained", "lr_edge"]))
    assert [result["marks"] for result in found] == [["lr_edge"], ["undertrained", "lr_edge"]]
    tuning = [result | {"purpose": "tuning"} for result in budgets([0.5, 0.7], marks=["undertrained"])]
    assert [result["marks"] for result in judged(tuning)] == [[], []]


def test_a_result_that_needs_no_other_mark_is_not_copied(budgets: Callable[..., list[Any]]) -> None:
    (result,) = budgets([0.5])
    assert judged([result])[0] is result


def test_only_the_same_cell_counts_as_half_the_budget(budgets: Callable[..., list[Any]]) -> None:
    lower, upper = budgets([0.5, 0.7])
    other = budgets([0.5], weight_decay=0.5)[0]
    seed = lower | {"cell": lower["cell"] | {"seed": 1}}
    assert marked([other, seed, upper]) == [False] * 3


def test_budgets_in_epochs_and_in_doublings_count(budgets: Callable[..., list[Any]]) -> None:
    once, twice = budgets([0.5], epochs=4, tokens=1)[0], budgets([0.7], epochs=8, tokens=1)[0]
    assert marked([once, twice]) == [False, True]
    doubled = budgets([0.7], epochs=4, tokens=1, doublings=1)[0]
    assert marked([once, doubled]) == [False, True]


def test_a_run_that_was_to_stop_early_and_did_is_not_undertrained(
    budgets: Callable[..., list[Any]],
) -> None:
    assert marked(budgets([0.9, 0.99], stop_at=0.99)) == [False, False]
    assert marked(budgets([0.9, 0.98], stop_at=0.99)) == [False, True]


@pytest.mark.parametrize(
    ("ended", "expected"), [("optimum", False), ("flat", False), ("failed", False), ("cap", True)]
)
def test_a_ladder_is_undertrained_if_it_ended_at_its_largest_budget(
    budgets: Callable[..., list[Any]], ended: str, expected: bool
) -> None:
    ladder = {"ended": ended, "most": 1, "rungs": [{"tokens": 1000, "accuracy": 0.5}]}
    (result,) = budgets([0.5])
    assert marked([result | {"ladder": ladder}]) == [expected]


def test_tables_show_marks_as_judged(budgets: Callable[..., list[Any]]) -> None:
    found = comparisons(budgets([0.5, 0.7], marks=["undertrained"]))
    assert [comparison.rows[0].eligible for comparison in found] == [True, False]
