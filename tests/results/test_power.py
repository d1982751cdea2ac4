"""A gate that cannot go red does not pass."""

from collections.abc import Callable, Sequence
from itertools import product
from math import comb
from typing import Any

import pytest
from scipy.stats import ttest_rel
from syrupy.assertion import SnapshotAssertion

from linbench.report.tables.gate import cell_table, outcome, page, to_json
from linbench.report.tables.gate import sentences as in_words
from linbench.results.gate_policy import Policy
from linbench.results.judgement import SeedPair, Verdict, judge
from linbench.results.power import collapse_p, seeds_to_show_collapse, seeds_to_show_divergence
from tests.helpers.gate import gated

BIMODAL = {"task": "mqar", "model": "deltanet", "learnt": 0.9}
Runs = Callable[..., list[Any]]

NOISES = {
    "none": [0.0] * 8,
    "little": [0.0, 0.004, -0.004, 0.002, -0.002, 0.003, -0.003, 0.001],
    "one seed": [-0.4, *[0.0] * 7],
}


@pytest.fixture
def runs(a_result: Callable[..., Any]) -> Runs:
    """Seeds of models about a score; noise: by seed."""
    return lambda score, seeds, noise=(0.0,) * 8, labels=("deltanet",), **more: [
        a_result(label, seed, max(0.0, score + noise[seed]), **more)
        for label in labels
        for seed in range(seeds)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", range(2, 9))
@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
def test_a_total_collapse_never_passes(runs: Runs, seeds: int, alpha: float) -> None:
    """A fall from .99 to .01 in one of several cells is red by either test, with any noise."""
    codes = set()
    for cells, bimodal, (before, after) in product((1, 8), (False, True), product(NOISES.values(), repeat=2)):
        others = runs(0.9, seeds, NOISES["little"], [f"other{i}" for i in range(cells - 1)])
        policy = {"seeds": seeds, "alpha": alpha, "bimodal": [BIMODAL] if bimodal else []}
        base = runs(0.99, seeds, before)
        for fallen in (
            runs(0.01, seeds, [abs(noise) for noise in after]),
            runs(0, seeds, status="diverged", metrics={}),
        ):
            found = gated(base + others, fallen + others, **policy)
            codes.add(found.exit_code)
            told = {one.pair.name: one.verdict for one in found.rows}["mqar quick native, deltanet"]
            assert found.exit_code in (4, 5), (cells, bimodal, before, after)
            assert told in {Verdict.red, Verdict.powerless, Verdict.collapsed, Verdict.noisy}
            same = gated(base + others, base + others, **policy)
            assert same.exit_code == (5 if told is Verdict.powerless else same.exit_code), (
                "it is told before anything fell, too"
            )
    assert codes <= {4, 5}
    assert 4 in codes


@pytest.mark.parametrize(
    ("seeds", "alpha", "cells", "needed"),
    [
        (3, 0.05, 1, 4),
        (6, 0.001, 1, 7),
        (2, 0.05, 1, 4),
        (4, 0.05, 8, 5),
        (6, 0.005, 8, 7),
        (6, 0.01, 8, None),
        (3, 0.051, 1, None),
        (4, 0.05, 1, None),
        (7, 0.001, 1, None),
    ],
)
def test_a_bimodal_cell_says_how_many_seeds_it_would_take(
    runs: Runs, snapshot: SnapshotAssertion, seeds: int, alpha: float, cells: int, needed: int | None
) -> None:
    """The most extreme outcome of n and n seeds has p 1 / C(2n, n).

    1/20 itself is not below .05, whatever rounding makes of it.
    """
    labels = ["deltanet", *(f"other{i}" for i in range(cells - 1))]
    base = runs(0.99, seeds, NOISES["little"], labels)
    found = gated(base, base, seeds=seeds, alpha=alpha, bimodal=[BIMODAL])
    one = next(one for one in found.rows if one.pair.name.endswith("deltanet"))
    assert (one.seeds_needed, found.exit_code) == (needed, 0 if needed is None else 5)
    if needed is not None:
        assert cells / comb(2 * needed, needed) < alpha <= cells / comb(2 * (needed - 1), needed - 1)
        assert found.problems == snapshot


def test_it_is_shown_in_the_table_in_json_and_in_markdown(runs: Runs, snapshot: SnapshotAssertion) -> None:
    base = runs(0.99, 3)
    found = gated(base, base, seeds=3, bimodal=[BIMODAL])
    (row,) = cell_table(found).texts
    assert row[8] == snapshot(name="verdict")
    (cell,) = to_json(found, Policy())["cells"]
    assert (cell["verdict"], cell["can_be_red"], cell["seeds_needed"], cell["red"]) == (
        "cannot be red",
        False,
        5,
        False,
    )
    assert f"| {row[8]} |" in page(found, Policy())
    assert outcome(found) == snapshot(name="outcome")


def test_by_the_means_it_depends_on_the_spread_of_the_baseline(runs: Runs) -> None:
    wide = runs(0.6, 3, [0.35, 0.0, -0.35])
    found = gated(wide, wide, seeds=3)
    assert found.exit_code == 5
    (one,) = found.rows
    assert (one.verdict, one.seeds_needed) == (Verdict.powerless, 7)
    assert gated(runs(0.6, 3, [0.01, 0.0, -0.01]), runs(0.6, 3), seeds=3).exit_code == 0


def test_what_no_number_of_seeds_would_show_says_why(runs: Runs, snapshot: SnapshotAssertion) -> None:
    base = runs(0.5, 6)
    assert gated(base, base, bimodal=[BIMODAL]).problems == snapshot(name="none learned it")
    assert gated(base, base, drop=0.4).problems == snapshot(name="drop")
    assert gated(base, base, bimodal=[BIMODAL | {"learnt": 0.1}]).problems == snapshot(
        name="chance is learned"
    )
    assert gated(base, base, bimodal=[BIMODAL | {"learnt": 0.49}]).exit_code == 0


def test_a_regression_outweighs_what_cannot_be_red(runs: Runs) -> None:
    base, flat = runs(0.99, 3), runs(0.9, 3, labels=["gla"])
    found = gated(base + flat, base + runs(0.5, 3, labels=["gla"]), seeds=3, bimodal=[BIMODAL])
    assert (found.exit_code, len(found.red), len(found.problems)) == (4, 1, 1)


def test_at_chance_on_both_sides_is_uninformative(runs: Runs, snapshot: SnapshotAssertion) -> None:
    idle, well = runs(0.12, 6, NOISES["little"]), runs(0.9, 6, NOISES["little"], ["gla"])
    both = gated(idle + well, idle + well)
    assert (both.exit_code, both.problems) == (0, ())
    assert [row[8] for row in cell_table(both).texts] == ["uninformative", "ok"]
    assert [cell["verdict"] for cell in to_json(both, Policy())["cells"]] == ["uninformative", "ok"]
    assert "| uninformative |" in page(both, Policy())
    assert [*in_words(both), outcome(both)] == snapshot(name="both")
    alone = gated(idle, idle)
    assert alone.exit_code == 5
    assert alone.problems == snapshot(name="alone")
    assert gated(idle, runs(0.9, 6)).rows[0].verdict is Verdict.ok, "what rose from chance has not got worse"


def test_that_all_seeds_diverge_where_nothing_was_learnt_is_shown_or_told(
    runs: Runs, snapshot: SnapshotAssertion
) -> None:
    well = runs(0.9, 3, NOISES["little"], ["gla"])
    diverged = runs(0, 3, status="diverged", metrics={})
    found = gated(runs(0.1, 3) + well, diverged + well, seeds=3)
    assert (found.exit_code, found.rows[0].verdict, found.rows[0].seeds_needed) == (
        5,
        Verdict.diverged,
        5,
    )
    assert found.problems == snapshot
    assert (
        gated(
            runs(0.1, 5) + runs(0.9, 5, labels=["gla"]),
            runs(0, 5, status="diverged", metrics={}) + runs(0.9, 5, labels=["gla"]),
            seeds=5,
        ).exit_code
        == 4
    )


def test_a_fall_to_chance_that_noise_hides_says_how_many_seeds_would_show_it(
    runs: Runs, snapshot: SnapshotAssertion
) -> None:
    (one,) = (found := gated(runs(0.99, 2), runs(0.135, 2, [0.1, -0.1]), seeds=2, alpha=0.01)).rows
    assert (one.verdict, found.exit_code, one.seeds_needed) == (Verdict.collapsed, 5, 3)
    assert found.problems == snapshot


def test_a_fall_whose_noise_would_hide_a_fall_to_chance_is_told(
    runs: Runs, snapshot: SnapshotAssertion
) -> None:
    (one,) = (found := gated(runs(0.99, 2), runs(0.3, 2, [0.3, -0.3]), seeds=2)).rows
    assert (one.verdict, found.exit_code, one.seeds_needed) == (Verdict.noisy, 5, 5)
    assert found.problems == snapshot
    half = gated(runs(0.99, 6), runs(0.99, 6, [0, 0, 0, 0, 0, -0.5]))
    assert (half.exit_code, half.rows[0].verdict) == (0, Verdict.fell), "six seeds would show more"


@pytest.mark.parametrize("baseline", [[0.9, 0.8, 0.85], [0.99, 0.98], [0.5, 0.7, 0.9, 0.4]])
def test_a_fall_of_every_seed_to_chance_has_the_p_of_pairs(baseline: Sequence[float]) -> None:
    """The p is that of scipy's own test."""
    lowest = collapse_p(baseline, chance=0.125, learned_from=None, seeds=len(baseline))
    assert lowest == pytest.approx(ttest_rel([0.125] * len(baseline), baseline, alternative="less").pvalue)


def test_the_seeds_it_takes_are_enough_and_one_fewer_are_not() -> None:
    for alpha in (0.05, 0.001):
        needed = seeds_to_show_collapse([0.6, 0.2, 0.4], chance=0.125, learned_from=None, alpha=alpha)
        assert needed
        assert collapse_p([0.6, 0.2, 0.4], chance=0.125, learned_from=None, seeds=needed) < alpha
        assert collapse_p([0.6, 0.2, 0.4], chance=0.125, learned_from=None, seeds=needed - 1) >= alpha
    assert seeds_to_show_divergence(alpha=0.05) == 4
    assert seeds_to_show_collapse([0.1, 0.1], chance=0.125, learned_from=None, alpha=0.05) is None


def test_the_correction_is_that_of_a_cell_that_falls_alone() -> None:
    pairs = [
        SeedPair("mine", [0.99] * 5, [0.99] * 5, 0.9),
        *[SeedPair(str(i), [0.9] * 5, [0.9] * 5) for i in range(12)],
    ]
    rule = Policy(alpha=0.05)
    assert judge(pairs, rule)[0].verdict is Verdict.powerless, "13 / C(10, 5) is more than .05"
    assert judge(pairs[:12], rule)[0].verdict is Verdict.ok
