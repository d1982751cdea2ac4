"""Tables of searches for learning rates."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.report.data import ReportData
from linbench.report.page.page import page
from linbench.report.table import ABSENT
from linbench.report.tables import all_tables
from linbench.report.tables.searches import search_table
from linbench.results.comparison import comparisons
from linbench.results.schema import misfit
from linbench.results.searches import highest_trials, search_outcomes
from tests.helpers.records import a_point, a_record

RATES = {1e-3: 0.4, 3.16e-3: 0.9, 1e-2: 0.5}
SEARCH = {
    "accuracies": [[rate, score] for rate, score in RATES.items()],
    "seeds": [1000, 1001],
    "best": 3.16e-3,
    "edge": False,
}
COST = {"runs": 12, "tokens": 1234}

Make = Callable[..., Any]


def reported(make: Make, label: str, scores: Sequence[float], **search: Any) -> list[Any]:
    """Return results at the chosen rate with these scores in validation, and others in the test."""
    return [
        make(label, seed, score / 2, lr=3.16e-3, search=SEARCH | search, curve=[a_point(score)])
        for seed, score in enumerate(scores)
    ]


def tuned(make: Make, label: str, seeds: Sequence[int] = (1000, 1001), **more: Any) -> list[Any]:
    """Return the runs of the search: each was trained on 64 tokens in each of 7 steps."""
    return [
        make(label, seed, lr=rate, purpose="tuning", curve=[a_point(score)], **more)
        for rate, score in RATES.items()
        for seed in seeds
    ]


def test_a_search_has_its_score_its_optimism_and_its_cost(a_result: Make) -> None:
    (found,) = comparisons(reported(a_result, "deltanet", [0.7, 0.9], **COST))
    table = search_table(found)
    assert table
    (told,) = table.to_records()
    assert told == {
        "model": "deltanet",
        "learning_rate": 3.16e-3,
        "tuning_score": 0.9,
        "reported_score": pytest.approx(0.8),
        "optimism": pytest.approx(0.1),
        "tuning_seeds": "1000 1001",
        "rates": 3,
        **COST,
    }
    assert table.texts == [["deltanet", "0.00316", "0.900", "0.800", "+0.100", "2", "3", "12", "1,234"]]


def test_an_older_search_has_the_cost_of_its_runs_where_all_are_kept(a_result: Make) -> None:
    older = reported(a_result, "deltanet", [0.7])
    every = [*tuned(a_result, "deltanet"), *tuned(a_result, "deltanet", [7])]
    tokens = [
        search_outcomes(row)[0].tokens
        for tuning in (every, every[1:], [])
        for row in comparisons([*older, *tuning])[0].rows
    ]
    assert tokens == [6 * 64 * 7, None, None]
    assert search_outcomes(comparisons(older)[0].rows[0])[0].runs == 6
    table = search_table(comparisons(older)[0])
    assert table
    assert table.texts[0][-1] == ABSENT


def test_a_diverged_seed_counts_as_chance_and_one_without_a_number_not_at_all(a_result: Make) -> None:
    results = reported(a_result, "deltanet", [0.7, 0.9, 0.9])
    results[1] |= {"status": "diverged", "metrics": {}}
    results[2] |= {"status": "oom", "metrics": {}}
    (outcome,) = search_outcomes(comparisons(results)[0].rows[0])
    assert outcome.reported_score == pytest.approx((0.7 + 0.125) / 2)
    (nothing,) = search_outcomes(comparisons(results[2:])[0].rows[0])
    assert (nothing.reported_score, nothing.optimism) == (None, None)


@pytest.mark.parametrize(
    ("rungs", "expected"), [({}, 0.7), ({"rungs": [0, 0, 1]}, 0.7), ({"rungs": [0, 1, 0]}, 0.85)]
)
def test_of_a_ladder_the_rung_on_which_the_rate_was_chosen_has_the_score(
    a_result: Make, rungs: dict[str, Any], expected: float
) -> None:
    climbed = reported(a_result, "deltanet", [1.0, 1.0], **rungs)
    for result, scores in zip(climbed, ((0.6, 0.9, 1.0), (0.8,)), strict=True):
        of_rungs = [{"tokens": 64 << n, "accuracy": score} for n, score in enumerate(scores)]
        result["ladder"] = {"ended": "optimum", "most": 6, "rungs": of_rungs}
    (outcome,) = search_outcomes(comparisons(climbed)[0].rows[0])
    assert outcome.reported_score == pytest.approx(expected)
    assert outcome.optimism == pytest.approx(0.9 - expected)


def test_of_a_rate_on_several_rungs_the_highest_counts(a_result: Make) -> None:
    runs = [a_result("gla", 1000, purpose="tuning", curve=[a_point(score)]) for score in (0.4, 0.6)]
    for doublings, run in enumerate(runs):
        run["cell"]["protocol"]["settings"] |= {"doublings": doublings}
    ladder = {"ended": "optimum", "most": 6, "rungs": [{"tokens": 64, "accuracy": 1.0}]}
    (found,) = comparisons([a_result("gla", search=SEARCH, ladder=ladder), *runs])
    assert len(found.rows[0].tuning) == 2
    assert highest_trials(found.rows[0]) == [runs[1]]


def test_searches_on_other_seeds_that_found_the_same_rate_have_a_row_each(a_result: Make) -> None:
    first, second = reported(a_result, "deltanet", [0.7, 0.9])
    second["search"] = second["search"] | {"seeds": [1000, 1001, 1002]}
    (row,) = comparisons([first, second])[0].rows
    assert [(one.tuning_seeds, one.reported_score) for one in search_outcomes(row)] == [
        ((1000, 1001), 0.7),
        ((1000, 1001, 1002), 0.9),
    ]


def test_only_models_whose_rate_was_searched_for_are_in_it(a_result: Make) -> None:
    given = a_result("gla", curve=[a_point()])
    assert search_table(comparisons([given])[0]) is None
    (found,) = comparisons([given, *reported(a_result, "deltanet", [0.7])])
    table = search_table(found)
    assert table
    assert list(table.frame["model"]) == ["deltanet"]


def test_it_is_written_and_stands_in_the_report_beside_its_comparison(
    a_result: Make, snapshot: SnapshotAssertion
) -> None:
    results = [
        *reported(a_result, "deltanet", [0.7, 0.9], **COST),
        *reported(a_result, "gla", [0.7]),
        *tuned(a_result, "gla"),
        *reported(a_result, "retnet", [0.7]),
    ]
    (table,) = (one for one in all_tables(ReportData(results), printed=True) if one.slug.endswith("-search"))
    assert table.to_markdown() == snapshot
    text = page(results, title="mine")
    assert text.count("<summary>Search for learning rates</summary>") == 1
    assert text.index('class="section comparison"') < text.index("Search for learning rates")


def test_a_result_with_and_without_the_cost_of_its_search_is_one() -> None:
    assert misfit(a_record("a", search=SEARCH)) is None
    assert misfit(a_record("a", search=SEARCH | COST)) is None
    assert misfit(a_record("a", search=SEARCH | {"runs": 0, "tokens": 1}))
    assert misfit(a_record("a", search=SEARCH | {"runs": 1, "tokens": 1.5}))
