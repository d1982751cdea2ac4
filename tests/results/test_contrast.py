"""Verdicts on variants beside each other: how often they are wrong, and whether the seeds they ask for do."""

import random
from collections.abc import Callable, Sequence
from itertools import combinations
from statistics import fmean

import pytest

from linbench.results.contrast import ALPHA, MARGIN, AccuracyContrast, LearningContrast, Outcome
from linbench.results.permutation import MOST_EXACT, permutation_p, seeds_to_differ
from linbench.results.statistics import holm
from linbench.results.survival import Time

Draw = Callable[[random.Random], float]


def normal(noise: random.Random) -> float:
    return noise.gauss(0.7, 0.05)


def two_valued(noise: random.Random) -> float:
    """A seed learns or does not."""
    return 0.98 if noise.random() < 0.6 else 0.01


def nearly_two_valued(noise: random.Random) -> float:
    return two_valued(noise) + noise.gauss(0, 0.005)


def judged(groups: Sequence[Sequence[float]]) -> list[Outcome]:
    """Return the verdicts of a command that compares all groups with the first."""
    contrasts = [AccuracyContrast(own, groups[0]) for own in groups[1:]]
    ps = holm([contrast.p for contrast in contrasts])
    return [contrast.judge(p, len(contrasts)).outcome for contrast, p in zip(contrasts, ps, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("draw", [normal, two_valued, nearly_two_valued])
@pytest.mark.parametrize(
    ("variants", "seeds"), [(2, 3), (2, 8), (6, 8), pytest.param(6, 10, marks=pytest.mark.nightly)]
)
def test_identical_systems_are_called_different_in_at_most_a_twentieth_of_draws(
    draw: Draw, variants: int, seeds: int
) -> None:
    noise, draws = random.Random(f"{draw.__name__} {variants} {seeds}"), 400
    wrong = sum(
        any(
            outcome is not Outcome.undecided
            for outcome in judged([[draw(noise) for _ in range(seeds)] for _ in range(variants)])
        )
        for _ in range(draws)
    )
    error = (ALPHA * (1 - ALPHA) / draws) ** 0.5
    assert wrong <= (ALPHA + 2 * error) * draws


@pytest.mark.slow
@pytest.mark.parametrize("draw", [normal, two_valued])
def test_what_differs_is_found_with_the_seeds_asked_for(draw: Draw) -> None:
    """The first seeds say how many more are needed; with these most of the differences are shown."""
    noise, shown, asked = random.Random(1), 0, 0
    for _ in range(60):
        own, first = ([draw(noise) + shift for _ in range(20)] for shift in (0.0, -0.2))
        contrast = AccuracyContrast(own, first)
        found = contrast.judge(contrast.p, 1)
        if found.outcome is not Outcome.undecided:
            shown += 1
        elif found.further is not None:
            asked += 1
            more = [
                [*values, *(draw(noise) + shift for _ in range(found.further))]
                for values, shift in ((own, 0.0), (first, -0.2))
            ]
            contrast = AccuracyContrast(*more)
            shown += contrast.judge(contrast.p, 1).outcome is Outcome.better
    assert shown >= 0.6 * 60
    assert draw is normal or asked


@pytest.mark.parametrize(
    ("own", "first"),
    [([0.1, 0.4, 0.35], [0.2, 0.9]), ([1, 1, 0, 1], [0, 0, 1, 0]), ([0.3, 0.3], [0.3, 0.3, 0.3])],
)
def test_p_is_the_share_of_all_divisions(own: list[float], first: list[float]) -> None:
    every = [*own, *first]

    def apart(chosen: tuple[int, ...]) -> float:
        rest = [every[i] for i in range(len(every)) if i not in chosen]
        return abs(fmean(every[i] for i in chosen) - fmean(rest))

    observed = apart(tuple(range(len(own))))
    divisions = [*combinations(range(len(every)), len(own))]
    as_far = sum(apart(chosen) >= observed - 1e-12 for chosen in divisions)
    assert permutation_p(own, first) == pytest.approx(as_far / len(divisions))


def test_many_values_are_divided_at_random_and_alike_every_time() -> None:
    noise = random.Random(0)
    own, first = ([noise.gauss(shift, 1) for _ in range(MOST_EXACT // 2)] for shift in (0.9, 0.0))
    exact = permutation_p(own, first)
    more = permutation_p([*own, fmean(own)], [*first, fmean(first)])
    assert more == permutation_p([*own, fmean(own)], [*first, fmean(first)])
    assert more == pytest.approx(exact, rel=0.3)


@pytest.mark.parametrize(
    ("own", "first"), [([], [0.1]), ([0.1], []), ([float("nan")], [0.1]), ([0.1], [float("inf")])]
)
def test_nothing_is_made_of_no_numbers(own: list[float], first: list[float]) -> None:
    with pytest.raises(ValueError, match="finite value"):
        permutation_p(own, first)


def test_a_difference_within_the_margin_is_decided() -> None:
    alike = [0.95, 0.951, 0.949, 0.95]
    close = AccuracyContrast(alike, [value + 0.0005 for value in alike])
    assert close.within_margin
    assert close.judge(close.p, 1).further == 0
    few = AccuracyContrast(alike[:2], alike[:2])
    assert few.judge(few.p, 1).further == seeds_to_differ(1, alpha=ALPHA) - 2, "two seeds say little"
    wide = AccuracyContrast([0.9, 0.99, 0.8, 0.95], [0.85, 0.97, 0.96, 0.9])
    assert not wide.within_margin
    assert (wide.judge(wide.p, 1).further or 0) > 10
    assert MARGIN == 0.01


def test_what_can_never_be_decided_asks_for_no_number() -> None:
    at_the_margin = AccuracyContrast([0.1, 0.9, 0.5, 0.5], [0.11, 0.91, 0.51, 0.51])
    assert at_the_margin.judge(at_the_margin.p, 1).further is None


def learned(*tokens: float) -> list[Time]:
    return [Time(by - 1, by) for by in tokens]


def test_tokens_to_learn_are_judged_by_the_log_rank_test() -> None:
    apart = LearningContrast(learned(1, 1, 2, 2), learned(7, 8, 8, 9))
    assert apart.judge(apart.p, 1) == (Outcome.sooner, apart.p, 0)
    turned = LearningContrast(apart.first, apart.own)
    assert turned.judge(turned.p, 1).outcome is Outcome.later
    few = LearningContrast(learned(1, 2), learned(8, 9))
    assert few.judge(few.p, 1).outcome is Outcome.undecided
    assert (few.judge(few.p, 1).further or 0) >= 2
    same = LearningContrast(learned(1, 2), learned(1, 2))
    assert same.judge(same.p, 1).further is None
