"""Looks: how many seeds must agree, and that chance alone reaches it no more often than the level allows."""

from itertools import pairwise

import pytest
from scipy.stats import binom

from linbench.claims.claim import claims
from linbench.claims.looks import LEVEL, LOOKS, MOST_CLAIMS, critical_counts, look_at


def chance_of_crossing(counts: tuple[int, ...], looks: tuple[int, ...], p: float = 0.5) -> float:
    """Return the chance of reaching one of the counts, by another way than the code: a walk step by step."""
    walks, crossed = {0: 1.0}, 0.0
    for seed in range(1, looks[-1] + 1):
        longer: dict[int, float] = {}
        for yes, share in walks.items():
            longer[yes + 1] = longer.get(yes + 1, 0.0) + p * share
            longer[yes] = longer.get(yes, 0.0) + (1 - p) * share
        walks = longer
        if seed in looks:
            least = counts[looks.index(seed)]
            crossed += sum(share for yes, share in walks.items() if yes >= least)
            walks = {yes: share for yes, share in walks.items() if yes < least}
    return crossed


@pytest.mark.parametrize("level", [LEVEL, LEVEL / 2, LEVEL / 12, LEVEL / 300, 0.05])
def test_chance_alone_crosses_at_no_more_than_the_level_at_each_look(level: float) -> None:
    counts = critical_counts(level)
    for place, size in enumerate(LOOKS):
        spent = chance_of_crossing(counts[: place + 1], LOOKS[: place + 1])
        assert spent <= level * size / LOOKS[-1]
        if counts[place] <= size:
            fewer = (*counts[:place], counts[place] - 1)
            assert chance_of_crossing(fewer, LOOKS[: place + 1]) > level * size / LOOKS[-1]


def test_with_one_look_it_is_the_sign_test() -> None:
    (count,) = critical_counts(0.01, (20,))
    assert binom.sf(count - 1, 20, 0.5) <= 0.01 < binom.sf(count - 2, 20, 0.5)


def test_the_counts_of_a_claim() -> None:
    assert critical_counts() == (14, 22, 27)
    assert critical_counts(LEVEL / 12) == (15, 23, 28), "the first look cannot decide among so many"


def test_what_holds_in_nine_of_ten_is_shown_by_the_last_look_nine_times_of_ten() -> None:
    assert chance_of_crossing(critical_counts(), LOOKS, 0.9) >= 0.9


def test_the_largest_look_counts_for_which_there_are_seeds() -> None:
    assert [look_at(seeds) for seeds in (0, 13, 14, 23, 24, 32, 99)] == [None, None, 0, 0, 1, 2, 2]
    assert all(smaller < larger for smaller, larger in pairwise(LOOKS))


def test_there_is_room_for_all_claims() -> None:
    assert len(claims()) <= MOST_CLAIMS
