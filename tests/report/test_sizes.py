from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from linbench.report.style.colors import MARKS, styles
from linbench.results.comparison import comparisons
from tests.helpers.figures import FIGURES


def drawn(name: str, results: list[Any]) -> list[Axes]:
    figure = Figure()
    return figure.axes if FIGURES[name].draw_on(figure, comparisons(results)[0]) else []


def words(axes: Axes) -> set[str]:
    return {text.get_text() for text in axes.texts}


def front(axes: Axes) -> list[tuple[float, float]]:
    (line,) = (line for line in axes.lines if line.get_drawstyle() == "steps-post")
    return list(zip(line.get_xdata(), line.get_ydata(), strict=True))  # type: ignore[arg-type]


def test_accuracy_against_state_floats_names_every_model_and_needs_two_sizes(a_result: Any) -> None:
    rows = [a_result("deltanet"), a_result("attention", recurrent=0, cache=5000)]
    (axes,) = drawn("state", rows)
    assert words(axes) >= {"deltanet", "attention", "Pareto front"}
    at = {float(line.get_xdata()[0]) for line in axes.lines if len(line.get_xdata()) == 1}  # type: ignore[arg-type, index]
    assert at == {float(row["model"]["state"]["total"]) for row in rows}
    assert not drawn("state", rows[:1])


def test_the_front_is_the_best_that_so_much_state_does_of_rows_without_marks(a_result: Any) -> None:
    scores = {100: 0.4, 200: 0.9, 300: 0.6, 400: 0.95}
    results = [
        a_result("gla", seed=0, score=score, recurrent=floats, heads=floats)
        for floats, score in scores.items()
    ]
    results += [a_result("deltanet", score=1.0, recurrent=150, marks=["lr_edge"])]
    (axes,) = drawn("state", results)
    assert front(axes) == [(100, 0.4), (200, 0.9), (400, 0.95), (400, 0.95)]


@pytest.mark.parametrize(
    ("score", "below"),
    [(0.1, True), (0.02, False), (0.4, False)],
    ids=["no room above", "none below either", "room above"],
)
def test_the_name_of_the_front_stands_below_it_where_the_line_of_chance_would_go_through_it(
    a_result: Any, score: float, below: bool
) -> None:
    """Chance is .125."""
    (axes,) = drawn(
        "state",
        [a_result("gla", score=score, recurrent=100), a_result("deltanet", score=0.9, recurrent=1000)],
    )
    (name,) = (text for text in axes.texts if text.get_text() == "Pareto front")
    assert isinstance(name, Annotation)
    assert name.xy[1] == score
    assert (name.get_position()[1] < 0, name.get_va() == "top") == (below, below)


def test_a_crowd_shows_the_front_of_all_in_every_panel_and_the_others_in_grey(a_result: Any) -> None:
    names = (
        "gla",
        "retnet",
        "hgrn2",
        "mamba2",
        "lightning",
        "deltanet",
        "kda",
        "comba",
        "rwkv7",
        "gated_deltanet",
    )
    every = drawn(
        "state", [a_result(name, score=0.1 * i, recurrent=100 + 50 * i) for i, name in enumerate(names)]
    )
    assert len(every) == 2
    assert front(every[0]) == front(every[1])
    assert len(front(every[0])) == len(names) + 1
    for axes in every:
        (others,) = (line for line in axes.lines if line.get_color() == "#CFCFCF")
        assert len(others.get_xdata()) == 5  # type: ignore[arg-type]


def marks(axes: Axes) -> list[tuple[float, float]]:
    """Return the places of all marks, the lowest first."""
    own = [line for line in axes.lines if line.get_marker() in MARKS and len(line.get_xdata()) == 1]  # type: ignore[arg-type]
    return sorted(
        ((float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in own), key=lambda at: at[1]
    )  # type: ignore[index]


def test_every_mark_stands_at_its_state_floats_also_beside_others_of_about_that_size(a_result: Any) -> None:
    results = [
        a_result(name, score=score, recurrent=floats)
        for name, score, floats in (("gla", 0.9, 100), ("kda", 0.2, 102), ("retnet", 0.5, 1000))
    ]
    (axes,) = drawn("state", results)
    assert marks(axes) == [(102, 0.2), (1000, 0.5), (100, 0.9)]


def test_marks_of_one_width_stand_side_by_side_the_lowest_to_the_left(a_result: Any) -> None:
    rows = (("gla", 0.9, 32), ("kda", 0.2, 32), ("retnet", 0.5, 64))
    (axes,) = drawn("width", [a_result(name, score=score, d_model=width) for name, score, width in rows])
    (low, _), (alone, _), (high, _) = marks(axes)
    assert low < 32 < high < 34
    assert alone == pytest.approx(64)


def test_a_model_has_the_mark_that_it_has_elsewhere_whatever_its_sizes(a_result: Any) -> None:
    names = ("comba", "deltaproduct", "deltaproduct[neg_eigval=false]")
    results = [
        a_result(name.split("[")[0], d_model=width, heads=i)
        for width in (32, 64)
        for i, name in enumerate(names)
    ]
    for result, name in zip(results, 2 * names, strict=True):
        result["label"] = name
    (axes,) = drawn("width", results)
    found = [str(line.get_marker()) for line in axes.lines if len(line.get_xdata()) == 1]  # type: ignore[arg-type]
    assert sorted(found) == sorted(2 * [style.mark for style in styles(results[:3])])


def test_accuracy_against_width_says_where_a_model_was_not_measured(a_result: Any) -> None:
    results = [
        a_result("deltanet", seed, 0.5 + 0.1 * seed, d_model=width) for width in (32, 64) for seed in (0, 1)
    ] + [a_result("gla", 0, 0.3, d_model=32)]
    (axes,) = drawn("width", results)
    assert words(axes) >= {"deltanet", "gla (at 32 only)"}
    assert [label.get_text() for label in axes.get_xticklabels()] == ["32", "64"]
    assert not drawn("width", [result for result in results if result["label"] == "gla"])


def test_every_model_is_among_models_those_without_a_number_too(a_result: Any) -> None:
    names = [f"./mine{i}.py:Mine" for i in range(8)]
    (axes,) = drawn(
        "models", [*(a_result(name) for name in names), a_result("gla", status="failed", metrics={})]
    )
    assert axes.get_yticklabels()[0].get_text() == "gla"
    assert words(axes) == {"failed 1/1"}


def test_two_widths_of_a_model_have_each_their_line_of_dots_and_a_key(a_result: Any) -> None:
    names = [f"./mine{i}.py:Mine" for i in range(5)]
    figure = Figure()
    (found,) = comparisons(
        [
            a_result(name, seed, 0.1 * i, d_model=width)
            for i, name in enumerate(names)
            for width in (32, 64)
            for seed in (0, 1)
        ]
    )
    assert FIGURES["models"].draw_on(figure, found)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["width 32", "width 64"]
    heights = {
        round(float(line.get_ydata()[0]), 3) for line in figure.axes[0].lines if line.get_marker() == "o"
    }  # type: ignore[index]
    assert len(heights) == 2 * len(names)
