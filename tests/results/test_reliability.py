"""Reliability over seeds, and agreement of orders."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from linbench.results.reliability import FEWEST_MODELS, agreement, reliability


def drawn(models: int, seeds: int, *, share: float, draw: np.random.Generator) -> list[list[float]]:
    """Return scores of which a share of the variance lies between models."""
    between = draw.normal(size=(models, 1)) * share**0.5
    return (between + draw.normal(size=(models, seeds)) * (1 - share) ** 0.5).tolist()


def test_the_share_of_variance_between_models_is_found() -> None:
    found = reliability(drawn(400, 5, share=0.8, draw=np.random.default_rng(0)))
    assert found is not None
    assert found.one == pytest.approx(0.8, abs=0.04)
    assert found.low < found.one < found.high
    assert found.of_mean == pytest.approx(5 * found.one / (1 + 4 * found.one)), "by Spearman and Brown"
    assert (found.models, found.seeds) == (400, 5)


def test_the_example_of_shrout_and_fleiss() -> None:
    """Six targets with four judges: ICC(1, 1) is .17 there, and ICC(1, k) is .44."""
    scores = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    found = reliability(scores)
    assert found is not None
    assert found.one == pytest.approx(0.17, abs=0.005)
    assert found.of_mean == pytest.approx(0.44, abs=0.005)


def test_an_interval_of_95_percent_has_the_share_as_often() -> None:
    draw = np.random.default_rng(0)
    found = [reliability(drawn(8, 3, share=0.6, draw=draw)) for _ in range(1000)]
    held = sum(one is not None and one.low <= 0.6 <= one.high for one in found)
    assert 930 <= held <= 970


def test_seeds_of_one_model_count_once_where_models_have_several_numbers_of_them() -> None:
    draw = np.random.default_rng(0)
    scores = drawn(600, 6, share=0.5, draw=draw)
    uneven = [row[: 2 + place % 5] for place, row in enumerate(scores)]
    found = reliability(uneven)
    assert found is not None
    assert found.one == pytest.approx(0.5, abs=0.06)
    assert 2 < found.seeds < 6


def test_what_cannot_tell_has_no_reliability() -> None:
    assert reliability([[0.5, 0.6]] * (FEWEST_MODELS - 1)) is None
    assert reliability([[0.5]] * 10) is None, "one seed says nothing of seeds"
    assert reliability([[1.0, 1.0]] * 10) is None, "no score differs from another"
    same = reliability([[place / 10] * 3 for place in range(10)])
    assert same is not None
    assert (same.one, same.low, same.high, same.of_mean) == (1, 1, 1, 1)
    noise = reliability([[0.0, 1.0]] * 10)
    assert noise is not None
    assert noise.one == pytest.approx(-1)
    assert noise.of_mean == 0


def test_tau_is_kendalls_with_ties() -> None:
    draw = np.random.default_rng(0)
    first, second = draw.integers(0, 5, size=(2, 20)).tolist()
    found = agreement(
        dict(zip("abcdefghijklmnopqrst", first, strict=True)),
        dict(zip("abcdefghijklmnopqrst", second, strict=True)),
    )
    assert found is not None
    assert found.tau == pytest.approx(kendalltau(first, second).statistic)
    assert found.low < found.tau < found.high
    assert found.models == 20


def test_orders_of_the_models_in_common_are_compared() -> None:
    first = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0, "other": 0.0}
    found = agreement(first, {name: 10 * value for name, value in first.items() if name != "other"})
    assert found is not None
    assert (found.tau, found.low, found.high, found.models) == (1, 1, 1, 5)
    turned = agreement(first, {name: -value for name, value in first.items()})
    assert turned is not None
    assert turned.tau == -1
    assert agreement(first, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}) is None
    assert agreement(first, dict.fromkeys(first, 1.0)) is None, "there is no order in it"
