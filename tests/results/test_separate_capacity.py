"""Capacity of variants with a model of its own for each number of pairs."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from linbench.report.data import ReportData
from linbench.report.tables.capacity import capacity_tables
from linbench.results.comparison import comparisons
from linbench.results.schema import Result
from linbench.results.separate_capacity import separate_capacities

Make = Callable[..., Result]

SCORES = {16: 1.0, 32: 0.85, 64: 0.4}
"""Accuracies by pairs that are recalls of 1, .8 and .2 where chance is a quarter."""


def trained(make: Make, label: str, scores: dict[int, float], seed: int = 0, **more: Any) -> list[Result]:
    """Return a result for each number of pairs, in longer sequences and smaller batches for more of them."""
    results = []
    for pairs, score in scores.items():
        result = make(label, seed, score, kv_pairs=pairs, chance=0.25, **more)
        cell: Any = result["cell"]
        cell["task"]["settings"]["seq_len"] = 4 * pairs
        cell["protocol"]["settings"]["batch_size"] = 1024 // pairs
        results.append(result)
    return results


def test_a_capacity_is_told_over_comparisons(a_result: Make) -> None:
    (group,) = separate_capacities(
        comparisons(trained(a_result, "gla", SCORES) + trained(a_result, "gla", SCORES, 1))
    )
    (found,) = group.found
    assert (group.pairs, found.pairs, found.seeds) == ([16, 32, 64], (16, 32, 64), 2)
    assert found.held(0.9).load == pytest.approx(16 * math.sqrt(2))
    assert found.held(0.5).load == pytest.approx(32 * math.sqrt(2))


def test_seeds_count_that_measured_something_at_every_number_of_pairs(a_result: Make) -> None:
    """One seed has no run with 64 pairs, one failed with 16, and one diverged with 32, which is chance."""
    runs = [trained(a_result, "gla", SCORES, seed) for seed in range(4)]
    runs[1].pop()
    runs[2][0] = a_result("gla", 2, kv_pairs=16, status="failed", metrics={}, chance=0.25)
    runs[2][0]["cell"] = trained(a_result, "gla", SCORES, 2)[0]["cell"]  # type: ignore[typeddict-item]
    runs[3][1] |= {"status": "diverged"}  # type: ignore[typeddict-item]
    (group,) = separate_capacities(comparisons([one for own in runs for one in own]))
    (found,) = group.found
    assert found.recalls.tolist() == [pytest.approx([1.0, 0.8, 0.2]), pytest.approx([1.0, 0.0, 0.2])]


def test_a_variant_that_lacks_a_number_of_pairs_is_left_out(a_result: Make) -> None:
    results = trained(a_result, "gla", SCORES) + trained(a_result, "kda", {16: 1.0, 32: 1.0})
    (group,) = separate_capacities(comparisons(results))
    assert [one.row.label for one in group.found] == ["gla"]


def test_a_rate_that_was_searched_for_may_differ_and_another_may_not(a_result: Make) -> None:
    search = {"accuracies": [[0.01, 0.5]], "seeds": [1000], "best": 0.01, "edge": False}

    def found(**more: Any) -> int:
        results = [
            one
            for place, pairs in enumerate(SCORES)
            for one in trained(a_result, "gla", {pairs: 0.5}, lr=0.01 / (1 + place), **more)
        ]
        return len(separate_capacities(comparisons(results)))

    assert (found(search=search), found()) == (1, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda cell: cell["protocol"]["settings"].update(tokens=200),
        lambda cell: cell["task"]["settings"].update(filler="zero"),
        lambda cell: cell["task"]["settings"].update(kv_pairs=16),
    ],
    ids=["another budget", "another task", "as many pairs twice"],
)
def test_comparisons_that_differ_in_something_else_make_no_capacity(
    a_result: Make, change: Callable[[Any], None]
) -> None:
    results = trained(a_result, "gla", SCORES)
    assert len(separate_capacities(comparisons(results))) == 1
    change(results[-1]["cell"])  # type: ignore[typeddict-item]
    assert separate_capacities(comparisons(results)) == []


def test_two_numbers_of_pairs_are_too_few(a_result: Make) -> None:
    assert separate_capacities(comparisons(trained(a_result, "gla", {16: 1.0, 32: 0.5}))) == []


def test_they_have_a_table_that_says_so(a_result: Make) -> None:
    results = [one for seed in range(5) for one in trained(a_result, "gla", SCORES, seed)]
    (made,) = capacity_tables(ReportData(results))
    (row,) = made.frame.to_dict("records")
    assert (row["model"], row["pairs at 90%"], row["learned"]) == ("gla", "22.6 [22.6, 22.6]", "5/5")
    assert "(16, 32, 64)" in made.caption
