"""Chance levels, held to a count of all that can happen."""

from collections import Counter
from itertools import permutations, product
from math import prod
from statistics import fmean

import pytest
import torch

from linbench.tasks.blocks.chance import (
    boxes_holding,
    most_common_of_rest,
    most_common_share,
    most_written_share,
    nth_draw_probabilities,
    occupied_boxes,
)
from linbench.tasks.random import inverse_powers


@pytest.mark.parametrize(("facts", "values"), [(1, 5), (2, 2), (4, 3), (3, 8), (7, 3)])
def test_the_share_of_the_commonest_value(facts: int, values: int) -> None:
    assert most_common_share(facts, values) == pytest.approx(
        fmean(max(Counter(held).values()) / facts for held in product(range(values), repeat=facts))
    )


@pytest.mark.slow
def test_many_facts_with_few_values_have_even_shares() -> None:
    assert 1 / 64 < most_common_share(100_000, 64) < 1.1 / 64
    assert most_common_share(2, 10**6) == pytest.approx((1 + 1e-6) / 2)


def test_facts_that_are_left() -> None:
    assert most_common_of_rest(3, share=0.25, values=4) == pytest.approx(
        9 / 16 + 6 / 16 * most_common_share(2, 4) + 1 / 16 * most_common_share(3, 4)
    )
    assert most_common_of_rest(1, share=1.0, values=4) == most_common_of_rest(500, share=1e-30, values=4) == 1
    assert most_common_of_rest(5, share=1.0, values=4) == pytest.approx(most_common_share(5, 4))


@pytest.mark.parametrize(
    ("count", "balls", "boxes"), [(1, 4, 3), (2, 5, 3), (1, 3, 1), (3, 3, 1), (1, 0, 4), (2, 6, 2)]
)
def test_boxes_with_so_many_balls(count: int, balls: int, boxes: int) -> None:
    found = Counter(
        sum(thrown.count(box) == count for box in range(boxes))
        for thrown in product(range(boxes), repeat=balls)
    )
    expected = [found[n] / boxes**balls for n in range(balls // count + 1)]
    assert boxes_holding(count, balls, boxes) == pytest.approx(expected[: boxes + 1], abs=1e-12)


def test_occupied_boxes() -> None:
    found = Counter(len(set(thrown)) for thrown in product(range(3), repeat=4))
    assert occupied_boxes(4, 3) == pytest.approx([found[n] / 3**4 for n in range(4)])


@pytest.mark.parametrize(("keys", "values", "writes"), [(2, 2, 4), (3, 2, 3), (3, 4, 5)])
def test_the_share_of_writes_of_the_value_that_gets_most(keys: int, values: int, writes: int) -> None:
    every = [
        max(Counter(held[key] for key in written).values()) / writes
        for held in product(range(values), repeat=keys)
        for written in product(range(keys), repeat=writes)
    ]
    assert most_written_share(keys, values, writes) == pytest.approx(fmean(every))


@pytest.mark.parametrize(
    ("count", "of", "power_a"), [(1, 1, 0.01), (2, 4, 0.5), (5, 5, 0.01), (3, 5, 2.0), (4, 6, 1.0)]
)
def test_draws_without_replacement(count: int, of: int, power_a: float) -> None:
    weights = [1 / x for x in inverse_powers(of, round(power_a - 1, 12))]
    expected = torch.zeros(of, count, dtype=torch.float64)
    for order in permutations(range(of), count):
        p = prod(
            weights[slot] / (sum(weights) - sum(weights[earlier] for earlier in order[:n]))
            for n, slot in enumerate(order)
        )
        for n, slot in enumerate(order):
            expected[slot, n] += p
    assert torch.allclose(nth_draw_probabilities(count, of=of, power_a=power_a), expected, atol=1e-7)


def test_many_draws_add_up() -> None:
    drawn = nth_draw_probabilities(64, of=64, power_a=0.01)
    assert torch.allclose(drawn.sum(dim=0), torch.ones(64, dtype=torch.float64), atol=1e-7)
    assert torch.allclose(drawn.sum(dim=1), torch.ones(64, dtype=torch.float64), atol=1e-7)
