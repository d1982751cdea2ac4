import itertools
import math

import pytest

from linbench.results.statistics import fisher, holm, welch
from tests.helpers.processes import imported

# Welch's own kind of case: unequal spreads and sizes
SHORT, LONG = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9], [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0]


@pytest.mark.parametrize("alternative", ["two-sided", "less", "greater"])
def test_a_difference_is_what_scipy_says(alternative: str) -> None:
    from scipy.stats import ttest_ind

    found = welch(SHORT, LONG, alternative=alternative, confidence=0.9)  # type: ignore[arg-type]
    assert found.p == pytest.approx(
        ttest_ind(SHORT, LONG, equal_var=False, alternative=alternative).pvalue, rel=1e-12
    )
    interval = ttest_ind(SHORT, LONG, equal_var=False).confidence_interval(0.9)
    assert (found.low, found.high) == (
        pytest.approx(interval.low, rel=1e-12),
        pytest.approx(interval.high, rel=1e-12),
    )
    assert found.mean == pytest.approx(sum(SHORT) / 6 - sum(LONG) / 8)


def test_a_difference_by_hand() -> None:
    """Means 2 and 5, variances 1 and 1, three each: t = -3 / sqrt(2/3) on four degrees of freedom."""
    found = welch([1, 2, 3], [4, 5, 6])
    assert found.mean == -3
    t = 3 / math.sqrt(2 / 3)
    share = t / math.sqrt(t**2 + 4)  # the t of four degrees in closed form
    assert found.p == pytest.approx(1 - share * (1 + (1 - share**2) / 2), rel=1e-12)
    assert found.high - found.mean == pytest.approx(2.7764451 * math.sqrt(2 / 3))


@pytest.mark.parametrize(
    ("value", "ps"),
    [(0.5, (1.0, 1.0, 1.0)), (0.4, (0.0, 0.0, 1.0)), (0.6, (0.0, 1.0, 0.0))],
)
def test_without_any_spread_the_difference_decides(value: float, ps: tuple[float, ...]) -> None:
    for alternative, p in zip(("two-sided", "less", "greater"), ps, strict=True):
        found = welch([value] * 6, [0.5] * 6, alternative=alternative)  # type: ignore[arg-type]
        assert found == (value - 0.5, value - 0.5, value - 0.5, p)


def test_equal_numbers_that_are_no_binary_fractions_have_no_spread() -> None:
    assert welch([0.1] * 7, [0.1] * 3).p == 1.0
    assert welch([0.1] * 7, [0.3] * 3).p == 0.0


def test_one_side_without_spread_is_an_ordinary_case() -> None:
    from scipy.stats import ttest_1samp

    assert welch(SHORT, [20.0] * 5).p == pytest.approx(ttest_1samp(SHORT, 20.0).pvalue, rel=1e-12)


@pytest.mark.parametrize("values", [[0.5], [], [0.5, math.nan], [0.5, math.inf]])
def test_what_has_no_t_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="two or more finite values"):
        welch(values, SHORT)
    with pytest.raises(ValueError, match="two or more finite values"):
        welch(SHORT, values)


def test_seeds_that_learn_are_counted_exactly() -> None:
    """All tables with these margins, counted out: 6 and 6 seeds, of which 7 learnt."""
    ways = {i: math.comb(6, i) * math.comb(6, 7 - i) for i in range(1, 7)}
    for learnt in ways:
        below = sum(ways[i] for i in ways if i <= learnt) / math.comb(12, 7)
        assert fisher(learnt, 6, 7 - learnt, 6, alternative="less") == pytest.approx(below)
        either = sum(ways[i] for i in ways if ways[i] <= ways[learnt]) / math.comb(12, 7)
        assert fisher(learnt, 6, 7 - learnt, 6) == pytest.approx(either)
    assert fisher(0, 6, 6, 6, alternative="less") == pytest.approx(1 / math.comb(12, 6))
    assert fisher(0, 6, 0, 6, alternative="less") == 1
    with pytest.raises(ValueError, match="at most all seeds"):
        fisher(7, 6, 0, 6)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
    assert holm([0.2]) == [0.2]


def test_holm_rejects_what_its_own_definition_does() -> None:
    """Step down: the smallest against alpha / m, the next against alpha / (m - 1), until one fails."""
    for ps in itertools.product([0.001, 0.012, 0.02, 0.03, 0.2], repeat=4):
        rejected = set()
        for rank, place in enumerate(sorted(range(4), key=lambda i: ps[i])):
            if ps[place] > 0.05 / (4 - rank):
                break
            rejected.add(place)
        assert {i for i, p in enumerate(holm(ps)) if p <= 0.05} == rejected


def test_to_import_it_needs_no_scipy() -> None:
    assert imported("import linbench.results.statistics", "scipy") == set()
