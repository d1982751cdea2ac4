from collections.abc import Callable
from itertools import combinations

import pytest
import torch

from linbench.tasks.blocks.scatter import depth_tenths, scatter
from tests.helpers.tasks import stream

ALPHA = 1e-3
SHAPES = [(1, 3, 10, 1), (3, 2, 7, 1), (2, 4, 14, 4), (4, 1, 11, 3), (1, 5, 0, 1), (3, 2, 2, 5)]


@pytest.mark.parametrize("depth", [None, 0.0, 0.4, 1.0])
@pytest.mark.parametrize(("items", "width", "hay", "unit"), SHAPES)
def test_all_hay_stands_in_order_between_whole_items(
    items: int, width: int, hay: int, unit: int, depth: float | None
) -> None:
    placed = scatter(stream(50), items=items, width=width, hay=hay, unit=unit, depth=depth)
    numbers = 1000 + torch.arange(items * width).view(1, items, width).expand(50, -1, -1)
    text = placed.write_items(placed.hay, numbers)
    rest = hay % unit
    for row in range(50):
        tokens = text[row].tolist()
        assert len(tokens) == hay + items * width
        assert [token for token in tokens if token < 1000] == list(range(-rest, hay - rest))
        for item, (start, before) in enumerate(
            zip(placed.starts[row].tolist(), placed.before[row].tolist(), strict=True)
        ):
            assert tokens[start : start + width] == [1000 + item * width + i for i in range(width)]
            assert sum(0 <= token < 1000 for token in tokens[:start]) == before * unit


def test_every_order_of_items_and_hay_is_as_likely(chi_squared: Callable[..., float]) -> None:
    before = scatter(stream(20_000), items=2, width=3, hay=9, unit=3).before
    orders = [(a, b - 1) for a, b in combinations(range(5), 2)]
    counts = torch.tensor([int((before == torch.tensor(order)).all(dim=1).sum()) for order in orders])
    assert chi_squared(counts, torch.full((10,), 2000)) > ALPHA


@pytest.mark.parametrize(("depth", "before"), [(0.0, 0), (0.1, 1), (0.5, 4), (0.9, 6), (1.0, 7)])
def test_a_depth_is_a_share_of_the_units(depth: float, before: int) -> None:
    assert (
        scatter(stream(3), items=2, width=1, hay=15, unit=2, depth=depth).before.tolist()
        == [[before, before]] * 3
    )


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (10, list(range(11))),
        (3, [0, 3, 7, 10]),
        (1, [0, 10]),
        (0, [0]),
        (20, [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10]),
    ],
)
def test_tenths_are_rounded(units: int, expected: list[int]) -> None:
    assert depth_tenths(torch.arange(units + 1), units).tolist() == expected
