from typing import NamedTuple, cast

import pytest

from tests.helpers.cases import even_places, spread_evenly


@pytest.mark.parametrize(
    ("count", "most", "places"),
    [
        (0, 4, []),
        (3, 4, [0, 1, 2]),
        (4, 4, [0, 1, 2, 3]),
        (100, 4, [0, 33, 66, 99]),
        (5, 2, [0, 4]),
        (7, 1, [0]),
    ],
)
def test_places_are_spread_from_the_first_to_the_last(count: int, most: int, places: list[int]) -> None:
    assert even_places(count, most) == places


def test_cases_are_chosen_in_each_test_by_itself() -> None:
    """Two of five cases of one test, and the one of another."""

    class Named(NamedTuple):
        nodeid: str

    cases = [Named(f"tests/test_one.py::test_many[{x}]") for x in range(5)]
    alone = Named("tests/test_one.py::test_alone")
    chosen = spread_evenly(cast("list[pytest.Item]", [alone, *cases]), 2)
    assert chosen == {alone, cases[0], cases[4]}
