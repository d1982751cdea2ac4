from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from linbench.tasks.blocks.text import cumulative_powers, markov, zipf
from tests.helpers.tasks import stream

N = 20_000
ALPHA = 1e-3


def law(words: int, exponent: float) -> Tensor:
    weights = torch.arange(1, words + 1, dtype=torch.float64) ** -exponent
    return N * weights / weights.sum()


@pytest.mark.parametrize("count", [1, 2, 3, 50, 2048])
@pytest.mark.parametrize("exponent", [0, 1, 2])
def test_cumulative_powers_are_exact_to_half_a_unit(count: int, exponent: int) -> None:
    weights = [Fraction(1, i**exponent) for i in range(1, count + 1)]
    found = cumulative_powers(count, float(exponent))
    assert len(found) == count
    assert found[-1] == 2**32
    total, so_far = sum(weights), Fraction(0)
    for weight, sum_ in zip(weights, found, strict=True):
        so_far += weight
        assert abs(sum_ - 2**32 * so_far / total) <= Fraction(1, 2) + Fraction(1, 10**6)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.7])
def test_words_are_as_frequent_as_powers_of_their_rank(
    chi_squared: Callable[..., float], exponent: float
) -> None:
    draws = zipf(stream(N), 5, words=12, exponent=exponent)
    assert draws.shape == (N, 5)
    for place in (0, 4):
        assert chi_squared(draws[:, place].bincount(minlength=12), law(12, exponent)) > ALPHA


def test_words_of_different_places_are_independent(chi_squared: Callable[..., float]) -> None:
    a, b = zipf(stream(N), 2, words=4, exponent=1.0).T
    assert (
        chi_squared((4 * a + b).bincount(minlength=16), (law(4, 1.0)[:, None] * law(4, 1.0) / N).flatten())
        > ALPHA
    )


@pytest.mark.parametrize("words", [1, 2, 7, 2048])
def test_a_word_of_the_chain_is_new_but_for_the_two_before_it(words: int) -> None:
    new = zipf(stream(20).child("new"), 100, words=words, exponent=1.0)
    for count in (0, 1, 2, 3, 64, 65, 100):
        x = markov(stream(20), count, words=words, exponent=1.0)
        assert x.shape == (20, count)
        assert torch.equal(
            x[:, 2:],
            torch.stack([(x[:, t - 1] + x[:, t - 2] + new[:, t]) % words for t in range(2, count)], dim=1)
            if count > 2
            else x[:, 2:],
        )


def test_words_of_the_chain_are_equally_frequent_from_the_start(chi_squared: Callable[..., float]) -> None:
    x = markov(stream(N), 40, words=5, exponent=1.0)
    for place in (0, 17, 38):
        assert (
            chi_squared((5 * x[:, place] + x[:, place + 1]).bincount(minlength=25), torch.full((25,), N / 25))
            > ALPHA
        )
