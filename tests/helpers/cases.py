"""A choice of the cases of tests with many."""

from collections.abc import Iterable

import pytest


def spread_evenly(items: Iterable[pytest.Item], most: int) -> set[pytest.Item]:
    """Return at most so many cases of each test, from its first to its last, with even steps between."""
    of_tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        of_tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {cases[place] for cases in of_tests.values() for place in even_places(len(cases), most)}


def even_places(count: int, most: int) -> list[int]:
    """Return at most so many of the places 0 ... count - 1: all, or the first, the last and some between."""
    if count <= most:
        return [*range(count)]
    return [round(i * (count - 1) / max(most - 1, 1)) for i in range(most)]
