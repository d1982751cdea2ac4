from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from linbench.report.figures.learning_time import THICKNESS
from linbench.results.comparison import comparisons
from tests.helpers.figures import FIGURES
from tests.helpers.learning import GRID, learners

Make = Callable[..., Any]
GROUPS = {"kda": [inf] * 8, "attention": [100] * 8, "deltanet": [200, 400, 400, 800, 800, 1600, inf, inf]}


def drawn(results: list[Any]) -> Any:
    """Return the axes of the figure."""
    figure = Figure()
    assert FIGURES["learning-time"].draw_on(figure, comparisons(results)[0])
    (axes,) = figure.axes
    return axes


@pytest.fixture
def axes(a_result: Make) -> Any:
    results = [one for name, times in GROUPS.items() for one in learners(a_result, name, times)]
    return drawn([*results, a_result("gla", status="failed", metrics={})])


def test_every_model_has_a_row_the_fastest_above(axes: Any) -> None:
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["gla", "kda", "deltanet", "attention"]
    (text,) = axes.texts
    assert (text.get_text(), text.get_position()[1]) == ("failed 1/1", 0)


def test_a_band_is_as_thick_as_the_share_that_has_not_learned(axes: Any) -> None:
    bands = [one for one in axes.collections if isinstance(one, PolyCollection)]
    assert len(bands) == len(GROUPS)
    found = {}
    for band in bands:
        corners = band.get_paths()[0].vertices
        row = round(float(corners[:, 1].min()) + THICKNESS / 2)
        thick = (corners[:, 1] - row + THICKNESS / 2) / THICKNESS
        found[row] = {at: thick[corners[:, 0] == at].max() for at in {*map(float, corners[:, 0])}}
    start = GRID[0] / 2
    assert found[1] == pytest.approx({start: 1, GRID[-1]: 1})
    # at a look the band falls from what it was before
    assert found[2] == pytest.approx({start: 1, 200: 1, 400: 7 / 8, 800: 5 / 8, 1600: 3 / 8})
    assert found[3] == pytest.approx({start: 1, 100: 1, GRID[-1]: 0})


def test_a_mark_is_the_median_and_a_line_its_interval(axes: Any) -> None:
    marks = {line.get_ydata()[0]: line for line in axes.lines if len(line.get_xdata()) == 1}
    intervals = {
        line.get_ydata()[0]: list(line.get_xdata()) for line in axes.lines if line not in marks.values()
    }
    assert {row: (mark.get_xdata()[0], mark.get_marker()) for row, mark in marks.items()} == {
        1: (GRID[-1], ">"),
        2: (800, "o"),
        3: (100, "o"),
    }
    assert intervals == {1: [GRID[-1]] * 2, 2: [100, GRID[-1]], 3: [GRID[0] / 2, 100]}


def test_what_takes_part_in_no_verdict_has_a_hollow_mark(a_result: Make) -> None:
    axes = drawn(
        [
            *learners(a_result, "attention", [100] * 2),
            *learners(a_result, "gla", [200] * 2, marks=["lr_edge"]),
        ]
    )
    faces = [line.get_markerfacecolor() for line in axes.lines]
    assert [face == "white" for face in faces] == [True, False]


def test_equally_fast_models_stand_in_the_order_of_their_names(a_result: Make) -> None:
    names = ("attention", "deltanet", "gla")
    axes = drawn([one for name in names for one in learners(a_result, name, [100] * 2)])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [*reversed(names)]


def test_it_needs_two_seeds_and_one_that_learned(a_result: Make) -> None:
    for times in ([100], [inf, inf]):
        (comparison,) = comparisons(learners(a_result, "attention", times))
        assert not FIGURES["learning-time"].applies(comparison)
        assert not FIGURES["learning-time"].draw_on(Figure(), comparison)
