import math
import random
from collections.abc import Callable
from math import comb, inf
from typing import Any

import pytest

from linbench.results.comparison import Comparison, comparisons
from linbench.results.learning_time import Learning, largest_budget, learning, learning_time, threshold
from linbench.results.scores import steps_to_reach
from linbench.results.survival import Time
from tests.helpers.learning import GRID, a_curve, learners

Make = Callable[..., Any]


def a_run(a_result: Make, *accuracies: float, **more: Any) -> Any:
    """Return a result that was validated on the grid."""
    points = zip(GRID, accuracies, strict=False)
    return a_result(curve=[{"step": 1, "tokens": at, "loss": 1.0, "accuracy": y} for at, y in points], **more)


def only(results: list[Any]) -> Comparison:
    (comparison,) = comparisons(results)
    return comparison


def by_label(found: list[Learning]) -> dict[str, Learning]:
    return {one.row.label: one for one in found}


def test_a_run_has_learned_nine_tenths_of_the_way_from_chance_to_the_optimum(a_result: Make) -> None:
    assert threshold(a_result(chance=0.0)) == 0.9
    assert threshold(a_result(chance=0.5)) == pytest.approx(0.95)
    assert threshold(a_result(chance=0.1, optimum=0.6)) == pytest.approx(0.55)
    assert threshold(a_result(chance=1.0)) == 1.0


def test_nothing_more_is_asked_than_what_ends_a_run(a_result: Make) -> None:
    result = a_result(chance=0.9)
    for stop_at, expected in ((None, 0.99), (0.98, 0.98), (0.999, 0.99)):
        result["cell"]["protocol"]["settings"]["stop_at"] = stop_at
        assert threshold(result) == pytest.approx(expected)


def test_a_time_lies_between_two_looks(a_result: Make) -> None:
    assert learning_time(a_run(a_result, 0.1, 0.5, 0.92, 0.1)) == (200, 400)
    assert learning_time(a_run(a_result, 0.92)) == (0, 100)
    assert learning_time(a_run(a_result, 0.1, 0.5), accuracy=0.5) == (100, 200)


def test_a_run_that_did_not_learn_is_censored_where_it_ended(a_result: Make) -> None:
    assert learning_time(a_run(a_result, 0.1, 0.5, 0.9)) == (400, inf)


def test_a_run_that_ended_early_as_it_had_learned_counts_as_such(a_result: Make) -> None:
    result = a_run(a_result, 0.1, 0.97, chance=0.9)
    assert learning_time(result) == (200, inf)
    result["cell"]["protocol"]["settings"]["stop_at"] = 0.97
    assert learning_time(result) == (100, 200)


def test_a_run_that_diverged_never_learns(a_result: Make) -> None:
    never = (inf, inf)
    assert learning_time(a_result(status="diverged", metrics={})) == never
    assert learning_time(a_run(a_result, 0.1, 1.0, status="diverged", metrics={})) == never


def a_ladder(a_result: Make, *rungs: float, ended: str, accuracies: tuple[float, ...] = (0.1,)) -> Any:
    """Return the last rung of a ladder whose rungs end at 200, 400, 800 ... tokens with these accuracies."""
    steps = [{"tokens": 200 * 2**i, "accuracy": accuracy} for i, accuracy in enumerate(rungs)]
    return a_run(a_result, *accuracies, ladder={"ended": ended, "most": 4, "rungs": steps})


def test_a_ladder_is_looked_at_where_each_rung_ended(a_result: Make) -> None:
    """The curve of the last rung has the constant rate; that of the second had fallen."""
    curve = (0.1, 0.2, 0.3, 0.95)
    assert learning_time(a_ladder(a_result, 0.1, 0.92, 0.95, ended="flat", accuracies=curve)) == (200, 400)
    assert learning_time(a_ladder(a_result, 0.1, 0.5, 0.95, ended="flat", accuracies=curve)) == (400, 800)
    assert learning_time(a_ladder(a_result, 0.1, 0.95, ended="optimum", accuracies=(0.1, 0.2))) == (200, 400)


def test_a_ladder_that_ended_flat_never_learns_and_at_its_cap_it_is_censored(a_result: Make) -> None:
    curve = (0.1, 0.2, 0.3, 0.4)
    assert learning_time(a_ladder(a_result, 0.4, 0.4, 0.4, ended="flat", accuracies=curve)) == (inf, inf)
    assert learning_time(a_ladder(a_result, 0.2, 0.3, 0.4, ended="cap", accuracies=curve)) == (800, inf)


def test_flat_ladders_are_no_reason_to_take_late_learners_for_the_group(a_result: Make) -> None:
    """Five of eight end flat at 800 tokens, before the others learn."""
    late = learners(a_result, "deltanet", [1600] * 3)
    for result in late:
        result["ladder"] = {"ended": "optimum", "most": 4, "rungs": [{"tokens": 1600, "accuracy": 1.0}]}
    flat = [a_ladder(a_result, 0.1, 0.1, 0.1, ended="flat") | {"id": f"flat {i}"} for i in range(5)]
    (found,) = learning(only([*late, *flat]))
    assert found.median is not None
    assert (found.learned, found.median.time) == (3, inf)


@pytest.mark.parametrize("status", ["failed", "oom", "timeout"])
def test_what_measured_nothing_has_no_time(a_result: Make, status: str) -> None:
    assert learning_time(a_run(a_result, 1.0, status=status, metrics={})) is None
    assert learning_time(a_result()) is None


def test_with_little_chance_it_is_the_column_of_steps_in_tokens(a_result: Make) -> None:
    """The accuracies at which the two differ are few: from .9 to .901 among 128 values."""
    draw = random.Random(1)
    for _ in range(50):
        accuracies = sorted(draw.randint(0, 100) / 100 for _ in GRID)
        result = a_run(a_result, *(y for y in accuracies if y != 0.9), chance=1 / 128)
        for place, point in enumerate(result["curve"]):
            point["step"] = GRID[place] / 10
        time = learning_time(result)
        assert time is None or time.by == 10 * steps_to_reach(result, 0.9)


def test_the_others_are_compared_with_the_fastest_among_all_pairs(a_result: Make) -> None:
    fast, slow, never = [100] * 4 + [200], [400, 400, 800, 800, 1600], [inf] * 5
    comparison = only(
        [
            *learners(a_result, "attention", slow),
            *learners(a_result, "deltanet", fast),
            *learners(a_result, "gla", never),
        ]
    )
    found = by_label(learning(comparison))
    assert list(found) == [row.label for row in comparison.rows]
    assert {label: (one.learned, one.median.time) for label, one in found.items() if one.median} == {
        "attention": (5, 800),
        "deltanet": (5, 100),
        "gla": (0, inf),
    }
    least = 2 / comb(10, 5)
    assert [label for label, one in found.items() if one.reference] == ["deltanet"]
    assert found["deltanet"].p is None
    assert found["attention"].p == found["gla"].p == pytest.approx(3 * least)
    assert largest_budget(comparison) == GRID[-1]


def test_beside_a_baseline_named_before_others_are_the_only_tests(a_result: Make) -> None:
    groups = {"attention": [800] * 5, "deltanet": [100] * 5, "gla": [inf] * 5}
    comparison = only([one for name, times in groups.items() for one in learners(a_result, name, times)])
    found = by_label(learning(comparison, baseline="attention"))
    assert found["attention"].reference
    assert found["attention"].p is None
    assert found["deltanet"].p == found["gla"].p == pytest.approx(2 * 2 / comb(10, 5))
    with pytest.raises(ValueError, match="kda is no variant"):
        learning(comparison, baseline="kda")


def test_of_equal_medians_the_lower_mean_is_faster_and_who_never_learns_takes_the_budget(
    a_result: Make,
) -> None:
    groups = {"attention": [200, 200, inf], "deltanet": [200, 200, 800], "gla": [inf, inf, 100]}
    comparison = only([one for name, times in groups.items() for one in learners(a_result, name, times)])
    assert [one.row.label for one in learning(comparison) if one.reference] == ["deltanet"]


def test_only_equal_widths_are_compared(a_result: Make) -> None:
    comparison = only(
        [
            *learners(a_result, "attention", [100] * 4, d_model=32),
            *learners(a_result, "deltanet", [800] * 4, d_model=32),
            *learners(a_result, "attention", [200] * 4, d_model=64),
            *learners(a_result, "deltanet", [1600] * 4, d_model=64),
        ]
    )
    found = learning(comparison)
    assert [one.reference for one in found] == ["attention" in one.row.label for one in found]
    expected = [None if one.reference else pytest.approx(2 * 2 / comb(8, 4)) for one in found]
    assert [one.p for one in found] == expected


def test_what_cannot_be_compared_has_no_p_and_is_no_test(a_result: Make) -> None:
    comparison = only(
        [
            *learners(a_result, "attention", [200] * 4),
            *learners(a_result, "deltanet", [800] * 4),
            *learners(a_result, "gla", [100]),
            *learners(a_result, "kda", [100] * 4, marks=["non-causal"]),
            *learners(a_result, "retnet", [100] * 4, status="failed", metrics={}),
        ]
    )
    found = {label.split()[0]: one for label, one in by_label(learning(comparison)).items()}
    assert [label for label, one in found.items() if one.reference] == ["attention"]
    assert {label: one.p for label, one in found.items() if one.p is not None} == {
        "deltanet": pytest.approx(2 / comb(8, 4))
    }
    assert (found["retnet"].times, found["retnet"].median) == ((), None)
    assert found["gla"].median == (100, 0, inf)


def test_a_short_budget_makes_no_variant_the_fastest(a_result: Make) -> None:
    """One learns in half of its seeds, at once; the other in all, later, but within the budget."""
    groups = {"attention": [100] * 3 + [inf] * 5, "deltanet": [1600] * 8}
    comparison = only([one for name, times in groups.items() for one in learners(a_result, name, times)])
    assert [one.row.label for one in learning(comparison) if one.reference] == ["deltanet"]


def test_diverged_seeds_count_against_a_variant(a_result: Make) -> None:
    some = learners(a_result, "attention", [100] * 3)
    lost = [a_result("attention", seed, status="diverged", metrics={}) for seed in range(3, 8)]
    (found,) = learning(only([*some, *lost]))
    assert (found.learned, len(found.times)) == (3, 8)
    assert found.median is not None
    assert found.median.time == inf
    assert found.times[-1] == Time(inf, inf)


@pytest.mark.slow
@pytest.mark.parametrize(("variants", "draws"), [(4, 100), pytest.param(8, 1000, marks=pytest.mark.nightly)])
def test_variants_that_are_alike_differ_in_one_of_twenty_draws_at_most(
    a_result: Make, variants: int, draws: int
) -> None:
    """The fastest is chosen after looking; three standard deviations of that many draws are granted."""
    draw, labels = random.Random(variants), [f"m{i}" for i in range(variants)]
    found = 0
    for _ in range(draws):
        results = [
            one
            for label in labels
            for one in learners(a_result, label, draw.choices([*GRID, inf], weights=[1, 3, 4, 3, 2, 3], k=8))
        ]
        found += any(one.p is not None and one.p <= 0.05 for one in learning(only(results)))
    assert found <= 0.05 * draws + 3 * math.sqrt(0.05 * 0.95 * draws)


def test_a_curve_of_these_tests_learns_when_it_should(a_result: Make) -> None:
    assert [learning_time(a_result(curve=a_curve(at))) for at in (100, 800, inf)] == [
        (0, 100),
        (400, 800),
        (1600, inf),
    ]
