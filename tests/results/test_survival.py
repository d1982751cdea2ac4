import math
import random
from itertools import combinations
from math import comb, inf

import pytest

from linbench.results.permutation import MOST_EXACT, seeds_to_differ
from linbench.results.survival import Time, log_rank, log_rank_scores, median, survival
from tests.helpers.learning import on_grid
from tests.helpers.processes import imported

NEVER = Time(inf, inf)
NIGHTLY = [pytest.mark.slow, pytest.mark.nightly]


def exactly(happened: list[float], censored: list[float]) -> list[Time]:
    """Return times that are known exactly."""
    return [Time(time, time) for time in happened] + [Time(time, inf) for time in censored]


# weeks in remission: Freireich et al. 1963, as Cox 1972 and most textbooks have them
TREATED = exactly([6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35])
PLACEBO = exactly([1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23], [])


def test_shares_by_hand() -> None:
    """One of seven goes at 1, one of six at 2, and two of five at 3, where two are lost from sight."""
    found = survival([*exactly([1, 2, 3, 3], [3, 3]), NEVER])
    assert found.times == [1, 2, 3]
    assert found.shares == pytest.approx([6 / 7, 5 / 7, 5 / 7 * 3 / 5])
    spread = math.sqrt(1 / (7 * 6) + 1 / (6 * 5) + 2 / (5 * 3)) / math.log(3 / 7)  # Greenwood
    level = math.log(-math.log(3 / 7))
    for end, found_end in ((-1.959964, found.low[2]), (1.959964, found.high[2])):
        assert found_end == pytest.approx(math.exp(-math.exp(level + end * spread)), rel=1e-6)


def test_published_remissions() -> None:
    """Medians 23 and 8 weeks; with log-log intervals from 13 on and from 4 to 11 (SAS, LIFETEST)."""
    assert median(TREATED) == (23, 13, inf)
    assert median(PLACEBO) == (8, 4, 11)
    shares = dict(zip(survival(TREATED).times, survival(TREATED).shares, strict=True))
    expected = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert shares == pytest.approx(expected, abs=5e-4)


def test_the_published_log_rank_test_of_these() -> None:
    """Chi-squared 16.79 on one degree of freedom; too many for the exact test."""
    assert len(TREATED) + len(PLACEBO) > MOST_EXACT
    assert log_rank(TREATED, PLACEBO) == pytest.approx(math.erfc(math.sqrt(16.793 / 2)), rel=1e-3)
    with_infinity = [NEVER if time.by == inf else time for time in TREATED]
    assert log_rank(with_infinity, PLACEBO) < log_rank(TREATED, PLACEBO)


@pytest.mark.parametrize(("sizes", "budget"), [((4, 4), 15), ((5, 6), 9), ((3, 7), 40), ((7, 5), 6)])
def test_the_exact_test_is_scipys_permutation_test_of_observed_less_expected(
    sizes: tuple[int, int], budget: int
) -> None:
    from scipy.stats import permutation_test

    draw = random.Random(sum(sizes))
    groups = [on_grid([draw.randint(1, 20) for _ in range(size)], budget) for size in sizes]
    pooled = [*groups[0], *groups[1]]

    def far(first: object, second: object) -> float:
        """Return how far the events observed in a group are from those expected in it, given as places."""
        places = {int(place) for place in first}  # type: ignore[attr-defined]
        left = 0.0
        for at in sorted({time.by for time in pooled if time.happened}):
            events = [place for place, time in enumerate(pooled) if time.by == at]
            risk = [place for place, time in enumerate(pooled) if min(time.by, budget) >= at]
            left += len(places & set(events)) - len(events) * len(places & set(risk)) / len(risk)
        return round(abs(left), 9)

    places = list(range(len(pooled)))
    expected = permutation_test(
        (places[: sizes[0]], places[sizes[0] :]),
        far,
        vectorized=False,
        n_resamples=inf,
        alternative="greater",
    )
    assert log_rank(*groups) == pytest.approx(expected.pvalue, rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 12])
def test_two_groups_apart_have_the_least_p(size: int) -> None:
    early, late = on_grid(range(1, size + 1)), on_grid(range(101, size + 101))
    assert log_rank(early, late) == log_rank(late, early) == pytest.approx(2 / comb(2 * size, size))
    assert log_rank(early, [NEVER] * size) == pytest.approx(2 / comb(2 * size, size))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 12])
def test_one_side_alone_counts_later_events(size: int) -> None:
    early, late = on_grid(range(1, size + 1)), on_grid(range(101, size + 101))
    assert log_rank(late, early, alternative="later") == pytest.approx(1 / comb(2 * size, size))
    assert log_rank([NEVER] * size, early, alternative="later") == pytest.approx(1 / comb(2 * size, size))
    assert log_rank(early, late, alternative="later") == 1


def test_both_sides_cover_every_division_once_but_ties_twice() -> None:
    """So p of a side is the share of divisions at least as low: checked by making all of them."""
    draw = random.Random(1)
    for _ in range(20):
        first, second = (on_grid([draw.randint(1, 6) for _ in range(4)], 5) for _ in range(2))
        pooled = [*first, *second]
        scores = log_rank_scores(pooled)
        sums = [sum(scores[i] for i in chosen) for chosen in combinations(range(8), 4)]
        expected = sum(one <= sum(scores[:4]) + 1e-9 for one in sums) / len(sums)
        assert log_rank(first, second, alternative="later") == pytest.approx(expected if any(scores) else 1)


def test_one_side_of_large_groups_is_half_of_both() -> None:
    draw = random.Random(3)
    slow, quick = ([draw.randint(1, most) for _ in range(20)] for most in (50, 30))
    both = log_rank(on_grid(slow), on_grid(quick))
    assert log_rank(on_grid(slow), on_grid(quick), alternative="later") == pytest.approx(both / 2)
    assert log_rank(on_grid(quick), on_grid(slow), alternative="later") == pytest.approx(1 - both / 2)


def test_large_groups_are_compared_as_scipy_compares_them() -> None:
    from scipy.stats import CensoredData, logrank

    draw = random.Random(3)
    first, second = ([draw.randint(1, most) for _ in range(20)] for most in (30, 50))
    censored = [CensoredData.right_censored(*_cut(values, 25)) for values in (first, second)]
    assert log_rank(on_grid(first, 25), on_grid(second, 25)) == pytest.approx(logrank(*censored).pvalue)


def _cut(values: list[int], budget: int) -> tuple[list[int], list[bool]]:
    return [min(value, budget) for value in values], [value > budget for value in values]


@pytest.mark.parametrize("other", [on_grid([3, 3]), on_grid([3] * 20)])
def test_where_all_happens_in_one_interval_nothing_differs(other: list[Time]) -> None:
    assert log_rank(on_grid([3] * 20), other) == 1


def test_where_nothing_happens_nothing_differs() -> None:
    nobody = on_grid([9] * 6, budget=5)
    assert log_rank(nobody, [NEVER] * 6) == log_rank(nobody * 3, nobody * 3) == 1
    assert median(nobody) == (inf, 5, inf)
    assert median([NEVER] * 6) == (inf, inf, inf)
    assert survival(nobody) == ([], [], [], [])


def test_a_single_time_is_its_own_median_without_an_interval() -> None:
    assert median(on_grid([7])) == (7, 0, inf)
    assert median([NEVER]) == (inf, 0, inf)
    assert log_rank(on_grid([7]), on_grid([9])) == 1


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_there_is_an_interval_if_all_times_hardly_lie_on_one_side_of_the_median(size: int) -> None:
    low = median(on_grid([5] * size)).low
    assert (low > 0) == (0.5**size <= 0.05)


def test_a_median_is_known_within_two_looks() -> None:
    """All eight happened between 4 and 8, so that the median did."""
    assert median([Time(4, 8)] * 8) == (8, 4, 8)


def test_half_of_a_group_is_enough_for_a_median_and_less_is_not() -> None:
    assert median(on_grid([1, 2, 9, 9], budget=5)).time == 2
    assert median(on_grid([1, 9, 9], budget=5)).time == inf


def test_a_budget_never_makes_a_group_look_faster() -> None:
    draw = random.Random(5)
    for _ in range(30):
        values = [draw.randint(1, 12) for _ in range(draw.randint(1, 9))]
        whole = median(on_grid(values))
        for budget in range(1, 12):
            cut = median(on_grid(values, budget))
            assert cut.time == (whole.time if whole.time <= budget else inf)
            assert cut.low == min(whole.low, budget)
            assert cut.high >= whole.high


def test_what_cannot_happen_any_more_stays_in_the_group() -> None:
    """Three of eight happen late. Lost from sight early, the others would leave these three alone."""
    late = on_grid([10, 11, 12])
    assert median([*late, *[NEVER] * 5]).time == inf
    assert median([*late, *[Time(4, inf)] * 5]).time == 11


def test_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one time"):
        median([])
    for groups in (([], on_grid([1])), (on_grid([1]), [])):
        with pytest.raises(ValueError, match="in each group"):
            log_rank(*groups)


def test_the_fewest_that_can_differ() -> None:
    assert [seeds_to_differ(pairs, alpha=0.05) for pairs in (1, 10, 45)] == [4, 6, 7]
    for pairs in (1, 6, 20):
        fewest = seeds_to_differ(pairs, alpha=0.05)
        early, late = on_grid(range(1, fewest + 1)), on_grid(range(101, fewest + 101))
        assert pairs * log_rank(early, late) <= 0.05 < pairs * log_rank(early[1:], late[1:])


@pytest.mark.parametrize(
    ("seeds", "draws"), [(3, 100), (5, 400), (8, 400), pytest.param(5, 10_000, marks=NIGHTLY)]
)
def test_groups_that_are_alike_differ_in_one_of_twenty_draws_at_most(seeds: int, draws: int) -> None:
    """Three standard deviations of that many draws are granted."""
    draw = random.Random(seeds)
    found = sum(log_rank(*(_drawn(draw, seeds) for _ in range(2))) <= 0.05 for _ in range(draws))
    assert found <= 0.05 * draws + 3 * math.sqrt(0.05 * 0.95 * draws)
    assert (found > 0) == (seeds >= seeds_to_differ(1, alpha=0.05))


@pytest.mark.parametrize(("seeds", "draws"), [(5, 200), (10, 200), pytest.param(8, 4000, marks=NIGHTLY)])
def test_intervals_hold_the_median(seeds: int, draws: int) -> None:
    """Intervals of times known exactly hold it in 93 to 98 % of draws; looks widen them."""
    draw = random.Random(seeds)
    held = 0
    for _ in range(draws):
        found = median(_drawn(draw, seeds, learn=1.0))
        held += found.low < math.exp(2) <= found.high
    assert held >= 0.93 * draws - 3 * math.sqrt(0.07 * 0.93 * draws)


def _drawn(draw: random.Random, seeds: int, *, learn: float = 0.7, budget: float = 16) -> list[Time]:
    """Return times of median e^2 in a group of which a share learns; others never do."""
    return on_grid(
        [math.ceil(draw.lognormvariate(2, 0.8)) if draw.random() < learn else inf for _ in range(seeds)],
        budget,
    )


def test_to_import_it_needs_no_scipy() -> None:
    assert imported("import linbench.results.survival", "scipy") == set()
