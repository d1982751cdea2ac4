"""Falling curves that cross a level."""

import math

import numpy as np
import pytest
from scipy.optimize import isotonic_regression
from scipy.stats import norm, t

from linbench.results.falling_curve import (
    DRAWS,
    crossing,
    crossing_loads,
    falling_fit,
    middle,
    resampled_means,
    tail,
)

LOADS = np.array([16.0, 32.0, 64.0, 128.0, 256.0, 512.0])


def crossed(*values: float, level: float = 0.9) -> float:
    return float(crossing_loads(np.array(values), LOADS[: len(values)], level))


def test_a_fit_is_that_of_scipy() -> None:
    generator = np.random.default_rng(3)
    curves = np.concatenate(
        [
            generator.standard_normal((200, 7)),
            generator.integers(0, 3, (200, 7)).astype(float),  # many ties
            np.linspace(1, 0, 7) + 0.1 * generator.standard_normal((200, 7)),
        ]
    )
    one_by_one = [isotonic_regression(curve, increasing=False).x for curve in curves]
    np.testing.assert_allclose(falling_fit(curves), one_by_one, atol=1e-12)


def test_a_fit_by_hand() -> None:
    """At a rise both points take the mean of the two; a falling one is its own fit."""
    np.testing.assert_allclose(falling_fit(np.array([1.0, 0.6, 0.8, 0.1])), [1.0, 0.7, 0.7, 0.1])
    np.testing.assert_allclose(falling_fit(np.array([0.2, 0.4, 0.9])), [0.5, 0.5, 0.5])
    np.testing.assert_allclose(falling_fit(np.array([0.9, 0.5, 0.5, 0.0])), [0.9, 0.5, 0.5, 0.0])


def test_between_two_loads_a_curve_is_linear_in_the_logarithm() -> None:
    """Half an octave is gone at .9 on the way from 1 at 32 to .8 at 64, and at .5 from there to .2 at 128."""
    curve = (1.0, 1.0, 0.8, 0.2)
    assert crossed(*curve) == pytest.approx(32 * math.sqrt(2))
    assert crossed(*curve, level=0.5) == pytest.approx(64 * math.sqrt(2))
    assert crossed(1.0, 0.6, level=0.9) == pytest.approx(16 * 2**0.25)


def test_a_curve_that_is_noisy_crosses_where_its_fit_does() -> None:
    """The rise from .85 to .95 is pooled to .9, which still counts; then a quarter of the way to .5."""
    assert crossed(1.0, 0.85, 0.95, 0.5) == pytest.approx(64.0)
    assert crossed(1.0, 0.85, 0.95, 0.5, level=0.8) == pytest.approx(64 * 2**0.25)


@pytest.mark.parametrize("level", [0.9, 0.5])
def test_a_curve_that_never_falls_is_censored_on_the_right(level: float) -> None:
    assert crossed(1.0, 1.0, 0.95, level=level) == math.inf
    assert crossed(level, level, level, level=level) == math.inf


@pytest.mark.parametrize("level", [0.9, 0.5])
def test_a_curve_that_begins_below_the_level_is_censored_on_the_left(level: float) -> None:
    assert crossed(0.4, 0.3, 0.0, level=level) == 0.0
    assert crossed(level - 1e-6, 0.3, 0.0, level=level) == 0.0


def test_a_plateau_at_the_level_crosses_at_its_end() -> None:
    assert crossed(1.0, 0.9, 0.9, 0.2) == pytest.approx(64.0)
    assert crossed(0.9, 0.2) == pytest.approx(16.0)


def test_rounding_does_not_decide() -> None:
    """(.92 - .2) / .8 is .9 but for the last digit, on either side of it."""
    nearly = (0.92 - 0.2) / 0.8
    assert crossed(nearly, np.nextafter(0.9, 0), 0.9 - 1e-16) == math.inf


def test_one_seed_has_no_interval() -> None:
    found = crossing(np.array([[1.0, 0.8]]), LOADS[:2], 0.9, draws=np.empty((0, 2)))
    assert (found.load, found.low, found.high) == (pytest.approx(16 * math.sqrt(2)), None, None)


def test_equal_seeds_have_an_interval_of_one_point() -> None:
    curves = np.tile([1.0, 0.8, 0.2], (5, 1))
    found = crossing(curves, LOADS[:3], 0.9, draws=resampled_means(curves, 1))
    assert found.low == pytest.approx(found.load)
    assert found.high == pytest.approx(found.load)


def test_ends_of_an_interval_are_censored_alone() -> None:
    """Two seeds of five never fall: the interval is open above, and the estimate is not."""
    curves = np.array([[1.0, 0.6, 0.0]] * 3 + [[1.0, 1.0, 1.0]] * 2)
    found = crossing(curves, LOADS[:3], 0.9, draws=resampled_means(curves, 1))
    assert found.load == pytest.approx(16 * 2 ** (0.1 / 0.24))
    assert found.low == pytest.approx(16 * 2**0.25)
    assert found.high == math.inf


def test_draws_depend_on_the_key_alone() -> None:
    curves = np.random.default_rng(0).random((5, 3))
    one, same, other = (resampled_means(curves, key) for key in (7, 7, 8))
    assert one.shape == (DRAWS, 3)
    assert (one == same).all()
    assert (one != other).any()
    np.testing.assert_allclose(one.mean(axis=0), curves.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(one.var(axis=0), curves.var(axis=0) / 5, rtol=0.1)


def test_draws_are_the_same_in_every_version_of_numpy() -> None:
    """The first picks of a key, written down once."""
    seeds = np.arange(5.0)[:, None]
    picked = np.random.PCG64(20).random_raw(5) % np.uint64(5)
    assert resampled_means(seeds, 20)[0, 0] == pytest.approx(picked.mean())
    assert picked.tolist() == [4, 3, 0, 2, 3]


@pytest.mark.parametrize("seeds", [2, 3, 5, 10, 1000])
def test_few_seeds_leave_out_less(seeds: int) -> None:
    reach = math.sqrt(seeds / (seeds - 1)) * t.ppf(0.975, seeds - 1)
    assert tail(seeds) == pytest.approx(norm.cdf(-reach), rel=1e-6, abs=1e-15)
    assert tail(seeds) < 0.025
    assert tail(100_000) == pytest.approx(0.025, rel=1e-3)


def test_the_middle_of_draws_may_be_infinite() -> None:
    draws = np.array([5.0, np.inf, 0.0, 3.0, 4.0])
    assert middle(draws, 0.0) == (0.0, math.inf)
    assert middle(draws, 0.25) == (3.0, 5.0)


def simulated(
    generator: np.random.Generator, seeds: int, *, spread: float, steep: float, fail: float = 0.0
) -> np.ndarray:
    """Curves of seeds, with some noise.

    Their capacities differ by octaves of standard deviation `spread`. A share of them, `fail`, learn nothing.
    """
    capacities = 90 * 2 ** (spread * generator.standard_normal((seeds, 1)))
    noise = 0.02 * generator.standard_normal((seeds, len(LOADS)))
    learned = generator.random((seeds, 1)) >= fail
    return learned / (1 + (LOADS / capacities) ** steep) + noise


def coverage(seeds: int, level: float, times: int, **population: float) -> float:
    """The share of intervals that hold the crossing of the mean over all seeds there might be."""
    generator = np.random.default_rng(seeds)
    truth = crossed(*simulated(generator, 200_000, **population).mean(axis=0), level=level)
    held = 0
    for key in range(times):
        curves = simulated(generator, seeds, **population)
        found = crossing(curves, LOADS, level, draws=resampled_means(curves, key))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    return held / times


@pytest.mark.slow
def test_intervals_over_five_seeds_cover_the_truth() -> None:
    """If each held it nine times in ten, 83 of 100 and more would do so in 98 of 100 tries."""
    assert coverage(5, 0.9, 100, spread=0.3, steep=3) >= 0.83


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("level", [0.9, 0.5])
@pytest.mark.parametrize(("seeds", "least"), [(5, 0.90), (10, 0.93)])
@pytest.mark.parametrize(("spread", "steep"), [(0.1, 2), (0.3, 3)])
def test_intervals_cover_the_truth(
    seeds: int, least: float, level: float, spread: float, steep: float
) -> None:
    """The share of 1,000 intervals has a standard deviation of at most .01."""
    assert coverage(seeds, level, 1000, spread=spread, steep=steep) >= least - 0.02


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("seeds", [5, 10])
def test_intervals_cover_less_where_some_seeds_learn_nothing(seeds: int) -> None:
    """Nothing tells a set of seeds without such a one that there are any."""
    assert 0.8 <= coverage(seeds, 0.5, 1000, spread=0.3, steep=3, fail=0.1) <= 0.93
