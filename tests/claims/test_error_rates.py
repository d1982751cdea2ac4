"""Simulations: how often verdicts are wrong, and how often a true claim is supported."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from linbench.claims.claim import Claim, claims
from linbench.claims.interval import point
from linbench.claims.looks import ERROR, LOOKS
from linbench.claims.quantities import Comparison, Every, Formula, Some
from linbench.claims.timings import TimingSource
from linbench.claims.verdict import REFUTED, SUPPORTED, UNDECIDED
from linbench.results.scores import accuracy
from linbench.results.store import CELL, Store
from tests.helpers.claims import a_claim, decided_by_looks

Pool = Callable[[np.random.Generator, int], NDArray[np.float64]]
"""A distribution of scores over seeds."""

ROOT = Path(__file__).parents[2]


def gaussian(draw: np.random.Generator, size: int) -> NDArray[np.float64]:
    return draw.normal(0.7, 0.1, size)


def two_valued(draw: np.random.Generator, size: int) -> NDArray[np.float64]:
    """A model that learns in two of three seeds, and then perfectly."""
    return draw.choice([0.01, 1.0, 1.0], size)


def two_modes(draw: np.random.Generator, size: int) -> NDArray[np.float64]:
    return draw.choice([0.01, 0.95], size) + draw.uniform(0, 0.05, size)


def stored(draw: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Scores of all models of the zoo on multi-query recall, as one distribution."""
    results = Store(ROOT / "results" / "h200").by_kind()[CELL]
    scores = [
        accuracy(result)
        for result in results
        if result["purpose"] == "report" and result["cell"]["task"]["name"] == "mqar"
    ]
    return draw.choice(scores, size)


MADE_UP: list[Pool] = [gaussian, two_valued, two_modes]
pools = pytest.mark.parametrize("pool", MADE_UP, ids=lambda pool: pool.__name__)

FOUR = {"a": "deltanet", "b": "gla", "c": "kda", "d": "retnet"}
TWO = {"a": "deltanet", "b": "gla"}

SHAPES = {
    "difference": a_claim(measures=TWO, supported="a - b > 0", refuted="a - b < 0"),
    "order of equals": a_claim(measures=TWO, supported="a >= b", refuted="a < b"),
    "range of four": a_claim(
        measures=FOUR,
        supported="max(a, b, c, d) - min(a, b, c, d) > 0.001",
        refuted="max(a, b, c, d) - min(a, b, c, d) < 0.0001",
    ),
    "largest difference": a_claim(
        measures=FOUR,
        supported="max(abs(a - b), abs(c - d)) > 0.001",
        refuted="max(abs(a - b), abs(c - d)) < 0.0001",
    ),
    "best of four": a_claim(
        measures=FOUR, supported="a > max(b, c, d)", refuted="a < max(b, c, d) and a < min(b, c, d)"
    ),
    "mean rank": a_claim(
        measures=FOUR,
        supported="mean(rank(a, b), rank(c, d)) < mean(rank(b, a), rank(d, c))",
        refuted="mean(rank(a, b), rank(c, d)) > mean(rank(b, a), rank(d, c))",
    ),
    "how many": a_claim(measures=FOUR, supported="(a > b) + (c > d) >= 2", refuted="(a < b) + (c < d) >= 2"),
}
"""Claims of every shape that shipped rules have. With identical models each answer calls them different."""


def drawn(claim: Claim, pool: Pool, draw: np.random.Generator, size: int) -> dict[str, list[float]]:
    """Return scores of models that are all identical."""
    return {measure.name: pool(draw, size).tolist() for measure in claim.deciding}


@pytest.mark.slow
@pools
@pytest.mark.parametrize("shape", SHAPES)
def test_identical_systems_are_called_different_in_few_draws(shape: str, pool: Pool) -> None:
    """At the level of a single claim, .00025 a side, none is expected among so many."""
    draw = np.random.default_rng(0)
    outcomes = [
        decided_by_looks(SHAPES[shape], drawn(SHAPES[shape], pool, draw, LOOKS[-1])) for _ in range(60)
    ]
    assert outcomes == [UNDECIDED] * len(outcomes)


@pytest.mark.slow
@pytest.mark.nightly
@pools
@pytest.mark.parametrize("shape", SHAPES)
def test_identical_systems_are_called_different_in_at_most_5_percent_of_many_draws(
    shape: str, pool: Pool
) -> None:
    draw = np.random.default_rng(1)
    outcomes = [
        decided_by_looks(SHAPES[shape], drawn(SHAPES[shape], pool, draw, LOOKS[-1])) for _ in range(1000)
    ]
    assert outcomes.count(UNDECIDED) >= (1 - ERROR) * len(outcomes)


@pytest.mark.parametrize("answer", [SUPPORTED, REFUTED])
def test_what_holds_in_nine_of_ten_replicates_is_shown_nine_times_of_ten(answer: str) -> None:
    draw = np.random.default_rng(2)
    claim = a_claim(supported="delta - sum >= 0.2", refuted="delta - sum <= 0.1")
    ahead, behind = (0.3, 0.0) if answer == SUPPORTED else (0.0, 0.3)
    outcomes: list[str] = []
    for _ in range(400):
        lead = np.where(draw.random(LOOKS[-1]) < 0.9, ahead, behind)
        total = draw.uniform(0.2, 0.5, LOOKS[-1])
        outcomes.append(decided_by_looks(claim, {"delta": (total + lead).tolist(), "sum": total.tolist()}))
    share = outcomes.count(answer) / len(outcomes)
    assert share >= 0.9 - 2 * (0.9 * 0.1 / len(outcomes)) ** 0.5
    assert set(outcomes) <= {answer, UNDECIDED}


RULED = [
    claim
    for claim in claims().values()
    if claim.rules and not any(isinstance(each.source, TimingSource) for each in claim.deciding)
]


def comparisons(formula: Formula) -> Iterator[Comparison]:
    match formula:
        case Comparison():
            yield formula
        case Every(parts) | Some(parts):
            for part in parts:
                yield from comparisons(part)


def is_true(formula: Formula, shares: dict[str, float]) -> bool:
    """Return whether a condition is true of the medians of a population.

    A share of yes that cannot be told from 1/2 is not taken for more.
    """
    match formula:
        case Comparison():
            return shares[str(formula)] > 0.53
        case Every(parts):
            return all(is_true(part, shares) for part in parts)
        case Some(parts):
            return any(is_true(part, shares) for part in parts)


def true_outcomes(claim: Claim, pool: Pool, draw: np.random.Generator, seeds: int) -> set[str]:
    """Return the outcomes of a claim that are right if all its models are identical."""
    scores = drawn(claim, pool, draw, seeds)
    replicates = [{name: point(own[seed]) for name, own in scores.items()} for seed in range(seeds)]
    right: set[str] = set()
    for outcome, rule in zip((SUPPORTED, REFUTED), claim.rules, strict=True):
        shares = {
            str(each): sum(each.holds(values) is True for values in replicates) / seeds
            for each in comparisons(rule.formula)
        }
        if is_true(rule.formula, shares):
            right.add(outcome)
    return right


def share_with_a_wrong_verdict(pool: Pool, catalogues: int, seeds: int) -> float:
    """Return the share of whole catalogues, on models that are all identical, with any wrong verdict."""
    draw = np.random.default_rng(3)
    right = {claim.id: true_outcomes(claim, pool, draw, seeds) | {UNDECIDED} for claim in RULED}
    wrong = [
        any(
            decided_by_looks(claim, drawn(claim, pool, draw, LOOKS[-1])) not in right[claim.id]
            for claim in RULED
        )
        for _ in range(catalogues)
    ]
    return float(np.mean(wrong))


@pytest.mark.slow
def test_a_whole_catalogue_has_no_wrong_verdict() -> None:
    """The pool is that on which one seed says least; a nightly test has all pools and many catalogues."""
    assert share_with_a_wrong_verdict(two_valued, catalogues=1, seeds=500) == 0


EQUAL = {"C14", "C15", "C29", "C60", "C64", "C66"}
"""The claims that two models are equal, or one no worse: identical models are a true answer."""


def test_identical_models_support_those_claims_alone_that_say_so() -> None:
    def narrow(draw: np.random.Generator, size: int) -> NDArray[np.float64]:
        return draw.normal(0.5, 0.002, size)

    draw = np.random.default_rng(5)
    outcomes = {claim.id: decided_by_looks(claim, drawn(claim, narrow, draw, LOOKS[-1])) for claim in RULED}
    assert {name for name, outcome in outcomes.items() if outcome == SUPPORTED} == EQUAL


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("pool", [*MADE_UP, stored], ids=lambda pool: pool.__name__)
def test_at_most_5_percent_of_many_whole_catalogues_have_any_wrong_verdict(pool: Pool) -> None:
    sample = pool(np.random.default_rng(4), 100_000)  # stored results are read once

    def fast(draw: np.random.Generator, size: int) -> NDArray[np.float64]:
        return draw.choice(sample, size)

    assert share_with_a_wrong_verdict(fast, catalogues=100, seeds=3000) <= ERROR
