"""Pairs that a variant holds, from stored results."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from linbench.results.capacity import Capacity, capacities, pairs_of_tests, rank_intervals, recall_curve
from linbench.results.schema import Result
from tests.helpers.capacity import compared, recall_result

Make = Callable[..., Result]

FALLS = {16: 1.0, 32: 0.8, 64: 0.2}
"""Recall that is .9 half an octave above 16 pairs, and .5 half an octave above 32."""


def only(results: list[Result]) -> Capacity:
    (found,) = capacities(compared(results))
    return found


def seeds(make: Make, label: str, *recalls: dict[int, float], **more: Any) -> list[Result]:
    return [recall_result(make, label, own, seed, **more) for seed, own in enumerate(recalls)]


def test_pairs_are_those_where_scaled_accuracy_crosses_a_level(a_result: Make) -> None:
    """Chance differs by test: an accuracy of .9 is recall .8 where chance is a half."""
    chances = {16: 0.5, 32: 0.5, 64: 0.25}
    (result,) = seeds(a_result, "deltanet", FALLS, chances=chances)
    assert [test["metrics"]["accuracy"] for test in result["tests"]] == pytest.approx([1.0, 0.9, 0.4])  # type: ignore[typeddict-item]
    found = only([result])
    assert found.held(0.9).load == pytest.approx(16 * math.sqrt(2))
    assert found.held(0.5).load == pytest.approx(32 * math.sqrt(2))


def test_tests_may_stand_in_any_order(a_result: Make) -> None:
    backwards = dict(reversed(FALLS.items()))
    one, other = only(seeds(a_result, "gla", FALLS)), only(seeds(a_result, "gla", backwards))
    assert one.pairs == other.pairs == (16, 32, 64)
    assert one.held(0.9).load == pytest.approx(other.held(0.9).load)


def test_censoring_on_either_side(a_result: Make) -> None:
    never, at_once = (
        seeds(a_result, "deltanet", {16: 1.0, 32: 0.95}),
        seeds(a_result, "gla", {16: 0.7, 32: 0.1}),
    )
    best, worst = capacities(compared([*at_once, *never]))
    assert (best.row.label, best.held(0.9).load, best.held(0.5).load) == ("deltanet", math.inf, math.inf)
    assert (worst.row.label, worst.held(0.9).load) == ("gla", 0.0)
    assert worst.held(0.5).load == pytest.approx(16 * 2 ** (1 / 3))


def test_the_mean_over_seeds_decides_and_diverged_seeds_count_as_chance(a_result: Make) -> None:
    """One of two seeds diverges, so that recall halves: .5 at 16 pairs, which is the level itself."""
    diverged = recall_result(a_result, "deltanet", FALLS, 1, status="diverged", metrics={})
    found = only([*seeds(a_result, "deltanet", FALLS), diverged])
    assert found.recalls.tolist() == [pytest.approx([1.0, 0.8, 0.2]), [0.0, 0.0, 0.0]]
    assert (found.held(0.9).load, found.held(0.5).load) == (0.0, 16.0)
    assert (found.learned, found.two_valued) == ([True, False], True)


def test_what_failed_is_no_seed(a_result: Make) -> None:
    failed = recall_result(a_result, "deltanet", FALLS, 1, status="failed", metrics={})
    assert recall_curve(failed) is None  # type: ignore[arg-type]
    assert only([*seeds(a_result, "deltanet", FALLS), failed]).seeds == 1
    assert capacities(compared([failed])) == []


@pytest.mark.parametrize(
    ("recalls", "missing"),
    [([FALLS] * 1, 4), ([FALLS] * 5, 0), ([FALLS] * 6, 0), ([FALLS] * 4 + [{16: 0.0, 32: 0.0, 64: 0.0}], 5)],
)
def test_seeds_that_are_missing(a_result: Make, recalls: list[dict[int, float]], missing: int) -> None:
    """Five are asked for, and ten where some have learned and others have not."""
    assert only(seeds(a_result, "deltanet", *recalls)).missing_seeds == missing


def test_those_that_learned_are_told_apart_where_others_did_not(a_result: Make) -> None:
    stuck = {16: 0.05, 32: 0.0, 64: 0.0}
    both = only(seeds(a_result, "deltanet", FALLS, stuck, FALLS))
    learned = both.held_by_learned(0.9)
    assert learned is not None
    assert learned.load == pytest.approx(16 * math.sqrt(2))
    assert both.held(0.9).load == 0.0
    assert only(seeds(a_result, "deltanet", FALLS, FALLS)).held_by_learned(0.9) is None
    assert only(seeds(a_result, "deltanet", stuck, stuck)).held_by_learned(0.9) is None


def test_one_seed_has_neither_interval_nor_rank(a_result: Make) -> None:
    found = capacities(compared(seeds(a_result, "deltanet", FALLS) + seeds(a_result, "gla", FALLS, FALLS)))
    assert [(one.row.label, one.held(0.9).low is None) for one in found] == [
        ("deltanet", True),
        ("gla", False),
    ]
    assert rank_intervals(found, 0.9) == [None, (1, 1)]


def test_pairs_are_given_for_a_thousand_recurrent_floats(a_result: Make) -> None:
    """Floats of convolutions do not count."""
    found = only(seeds(a_result, "deltanet", FALLS, recurrent=2000))
    assert found.recurrent_floats == 2000
    assert found.per_thousand(found.held(0.9).load) == pytest.approx(8 * math.sqrt(2))


def test_a_cache_has_no_size_to_divide_by_and_stands_last(a_result: Make) -> None:
    never = {16: 1.0, 32: 1.0, 64: 1.0}
    softmax = seeds(a_result, "attention", never, never, recurrent=0, cache=64)
    hybrid = seeds(a_result, "deltanet+attention", never, never, recurrent=10, cache=64)
    found = capacities(compared([*softmax, *hybrid, *seeds(a_result, "gla", FALLS, FALLS)]))
    assert [(one.row.label, one.recurrent_floats) for one in found] == [
        ("gla", 100),
        ("attention", None),
        ("deltanet+attention", None),
    ]
    assert found[1].per_thousand(512.0) is None
    assert rank_intervals(found, 0.9) == [(1, 1), None, None]


def test_the_most_pairs_per_float_come_first(a_result: Make) -> None:
    """Equal pairs at 90 % are ordered by those at 50 %; a smaller state beats a larger one."""
    slower = {16: 1.0, 32: 0.8, 64: 0.6}
    found = capacities(
        compared(
            [
                *seeds(a_result, "gla", FALLS),
                *seeds(a_result, "kda", slower),
                *seeds(a_result, "deltanet", FALLS, recurrent=50),
                *seeds(a_result, "mamba2", {16: 0.0, 32: 0.0, 64: 0.0}),
            ]
        )
    )
    assert [one.row.label for one in found] == ["deltanet", "kda", "gla", "mamba2"]


def noisy(
    make: Make, label: str, held: float, generator: np.random.Generator, count: int = 5
) -> list[Result]:
    """Seeds that recall half of about so many pairs."""
    capacity = held * 2 ** (0.3 * generator.standard_normal(count))
    return seeds(
        make,
        label,
        *({pairs: 1 / (1 + (pairs / own) ** 3) for pairs in (16, 32, 64, 128)} for own in capacity),
    )


def test_ranks_of_far_variants_are_certain_and_those_of_near_ones_are_not(a_result: Make) -> None:
    generator = np.random.default_rng(1)
    found = capacities(
        compared(
            [
                *noisy(a_result, "deltanet", 100, generator),
                *noisy(a_result, "gla", 34, generator),
                *noisy(a_result, "kda", 35, generator),
            ]
        )
    )
    assert found[0].row.label == "deltanet"
    assert rank_intervals(found, 0.5) == [(1, 1), (2, 3), (2, 3)]


@pytest.mark.parametrize("recall", [1.0, 0.0])
def test_what_is_censored_has_no_order(a_result: Make, recall: float) -> None:
    """Two that hold all pairs, or none, may be in either order, whatever their sizes."""
    level = dict.fromkeys((16, 32), recall)
    middle = {16: 1.0, 32: 0.0}
    found = capacities(
        compared(
            seeds(a_result, "deltanet", level, level)
            + seeds(a_result, "gla", level, level, recurrent=99)
            + seeds(a_result, "kda", middle, middle)
        )
    )
    ranks = {one.row.label: rank for one, rank in zip(found, rank_intervals(found, 0.9), strict=True)}
    tied, other = ((1, 2), (3, 3)) if recall else ((2, 3), (1, 1))
    assert ranks == {"deltanet": tied, "gla": tied, "kda": other}


def test_ties_share_their_ranks(a_result: Make) -> None:
    found = capacities(compared(seeds(a_result, "gla", FALLS, FALLS) + seeds(a_result, "kda", FALLS, FALLS)))
    assert rank_intervals(found, 0.9) == [(1, 2), (1, 2)]


def test_the_same_results_give_the_same_numbers_in_any_order_and_company(a_result: Make) -> None:
    generator = np.random.default_rng(2)
    own, others = noisy(a_result, "deltanet", 60, generator), noisy(a_result, "gla", 30, generator)
    alone = only(own).held(0.9)
    beside = capacities(compared([*others, *reversed(own)]))[0].held(0.9)
    assert alone == beside


@pytest.mark.parametrize(
    "tests",
    [
        [],
        [{"kv_pairs": 16}],
        [{"kv_pairs": 16, "seq_len": 64}, {"kv_pairs": 16, "seq_len": 128}],
        [{"kv_pairs": 16, "filler": "zero"}, {"kv_pairs": 32, "filler": "random"}],
        [{"bits": 16}, {"bits": 32}],
        [{"kv_pairs": 0}, {"kv_pairs": 32}],
        [{"kv_pairs": "16"}, {"kv_pairs": 32}],
        [{"kv_pairs": True}, {"kv_pairs": 32}],
        [{"kv_pairs": 10**400}, {"kv_pairs": 32}],
    ],
)
def test_without_several_numbers_of_pairs_there_is_no_capacity(
    a_result: Make, tests: list[dict[str, Any]]
) -> None:
    result: Any = recall_result(a_result, "deltanet", FALLS)
    result["cell"]["task"]["test"] = [{"settings": own} for own in tests]
    assert pairs_of_tests(result) == []
    assert capacities(compared([result])) == []


def test_scores_that_no_run_has_do_no_harm(a_result: Make) -> None:
    found = only(seeds(a_result, "deltanet", *[{16: 1e300, 32: -1e300}] * 5))
    assert found.recalls.min() == -1.0
    assert found.held(0.9).load == pytest.approx(16 * 2**0.05)


@pytest.mark.slow
@pytest.mark.nightly
def test_equal_variants_are_given_different_ranks_in_few_draws(a_result: Make) -> None:
    """At most 5 % of 300 pairs are, and what chance adds to that (a standard deviation of 1.3 %)."""
    generator, wrong = np.random.default_rng(5), 0
    for _ in range(300):
        found = capacities(
            compared(noisy(a_result, "gla", 50, generator) + noisy(a_result, "kda", 50, generator))
        )
        wrong += rank_intervals(found, 0.9) != [(1, 2), (1, 2)]
    assert wrong / 300 <= 0.05 + 2 * 0.013
