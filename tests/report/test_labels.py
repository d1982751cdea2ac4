import itertools

import pytest
from matplotlib.figure import Figure

from linbench.report.labels import HIGHEST, LOWEST, Named, beside, spaced


def test_names_that_have_room_stand_where_they_belong() -> None:
    assert spaced([0.1, 0.5, 0.9], 0.06) == pytest.approx([0.1, 0.5, 0.9])


def test_names_that_would_cover_each_other_move_apart_both_ways() -> None:
    assert spaced([0.5, 0.5, 0.5], 0.06) == pytest.approx([0.44, 0.5, 0.56])


@pytest.mark.parametrize("heights", [[1.0] * 5, [0.0] * 5, [0.0] * 3 + [0.5] + [1.0] * 4, [0.99] * 40])
def test_no_name_leaves_the_axes_and_none_covers_another(heights: list[float]) -> None:
    found = spaced(heights, 0.06)
    gap = min(0.06, (HIGHEST - LOWEST) / (len(heights) - 1))
    assert all(higher - lower >= gap - 1e-9 for lower, higher in itertools.pairwise(found))
    assert LOWEST - 1e-9 <= found[0] <= found[-1] <= HIGHEST + 1e-9


def test_names_stand_in_the_order_of_what_they_name_and_what_is_missing_below() -> None:
    axes = Figure().add_subplot()
    beside(axes, [Named(0.9, 1.0, "high", "#000000"), Named(0.1, 1.0, "low", "#000000")], ["gone"])
    placed = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert placed["gone"] < placed["low"] < placed["high"]
