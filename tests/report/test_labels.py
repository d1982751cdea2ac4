import itertools

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from linbench.report.style.labels import HIGHEST, LOWEST, Named, add_title, label_lines, spread_labels


def test_names_that_have_room_stand_where_they_belong() -> None:
    assert spread_labels([0.1, 0.5, 0.9], 0.06) == pytest.approx([0.1, 0.5, 0.9])


def test_names_that_would_cover_each_other_move_apart_both_ways() -> None:
    assert spread_labels([0.5, 0.5, 0.5], 0.06) == pytest.approx([0.44, 0.5, 0.56])


@pytest.mark.parametrize("heights", [[1.0] * 5, [0.0] * 5, [0.0] * 3 + [0.5] + [1.0] * 4, [0.99] * 40])
def test_no_name_leaves_the_axes_and_none_covers_another(heights: list[float]) -> None:
    found = spread_labels(heights, 0.06)
    gap = min(0.06, (HIGHEST - LOWEST) / (len(heights) - 1))
    assert all(higher - lower >= gap - 1e-9 for lower, higher in itertools.pairwise(found))
    assert LOWEST - 1e-9 <= found[0] <= found[-1] <= HIGHEST + 1e-9


def test_names_stand_in_the_order_of_what_they_name_and_what_is_missing_below() -> None:
    axes = Figure().add_subplot()
    label_lines(axes, [Named(0.9, 1.0, "high", "#000000"), Named(0.1, 1.0, "low", "#000000")], ["gone"])
    placed = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert placed["gone"] < placed["low"] < placed["high"]


@pytest.mark.parametrize("size", ["medium", 10.0])
@pytest.mark.parametrize(("inches", "lines"), [(5.5, 2), (8.0, 1)])
def test_a_title_keeps_to_the_width_of_its_figure(inches: float, lines: int, size: float | str) -> None:
    figure = Figure(figsize=(inches, 3))
    canvas = FigureCanvasAgg(figure)
    with mpl.rc_context({"font.size": 9}):
        add_title(
            figure,
            "Training: d_model 1024, bf16, 65,536 tokens a batch, native form, NVIDIA H100 80GB HBM3",
            size,
        )
    (title,) = figure.texts
    extent = title.get_window_extent(canvas.get_renderer())
    assert 0 < extent.x0 < extent.x1 < figure.bbox.x1
    assert title.get_text().count("\n") + 1 == lines
