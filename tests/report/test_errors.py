from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from linbench.report.figures.errors import FIGURE, shares
from linbench.results.comparison import comparisons

KINDS = {
    "stale": 0.3,
    "stale_previous": 0.15,
    "stale_middle": 0.05,
    "stale_first": 0.2,
    "cross": 0.1,
    "alien": 0.1,
}


def test_shares_of_answers_add_up_to_one(a_result: Any) -> None:
    found = shares(a_result(metrics={"accuracy": 0.5, **KINDS}))
    assert found is not None
    assert sum(found.values()) == pytest.approx(1)
    assert found["the one before"] == 0.15
    assert found["the first"] == pytest.approx(0.1), "those that are not the one before as well"
    assert shares(a_result(metrics={"accuracy": 0.5})) is None
    assert shares(a_result(metrics={}, status="diverged")) is None


def test_values_of_like_keys_are_a_part_of_those_of_other_keys(a_result: Any) -> None:
    found = shares(a_result(metrics={"accuracy": 0.5, **KINDS, "near": 0.08, "far": 0.02}))
    assert found is not None
    assert sum(found.values()) == pytest.approx(1)
    assert found["a like key's"] == 0.08
    assert found["another key's"] == pytest.approx(0.02)


def test_a_bar_has_a_strip_for_each_seed_and_the_best_stands_above(a_result: Any) -> None:
    worse = [a_result("gla", seed, metrics={"accuracy": 0.5, **KINDS}) for seed in (0, 1)]
    better = [a_result("deltanet", metrics={"accuracy": 1.0, **dict.fromkeys(KINDS, 0.0)})]
    figure = Figure()
    assert FIGURE.draw_on(
        figure, comparisons([*worse, *better, a_result("kda", status="oom", metrics={})])[0]
    )
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["kda", "gla", "deltanet"]
    assert [text.get_text() for text in axes.texts] == ["oom 1/1"]
    assert len(axes.patches) == 2 * 6 + 1
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "the last value",
        "the one before",
        "between",
        "the first",
        "another key's",
        "of nowhere",
    ]


def test_a_seed_that_diverged_has_a_blank_strip_below_the_others(a_result: Any) -> None:
    right = {"accuracy": 1.0, **dict.fromkeys(KINDS, 0.0)}
    results = [
        a_result("gla", 0, metrics=right),
        a_result("gla", 1, metrics={}, status="diverged"),
        a_result("kda", 0, metrics=right),
    ]
    figure = Figure()
    assert FIGURE.draw_on(figure, comparisons(results)[0])
    strips = {
        (patch.get_y(), patch.get_height()): patch.get_facecolor()
        for patch in figure.axes[0].patches
        if isinstance(patch, Rectangle)
    }
    low, high = sorted(strips)[:2]
    assert strips[low] == (1.0, 1.0, 1.0, 1.0) != strips[high]
    assert high[0] == pytest.approx(low[0] + low[1])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["the last value", "diverged"]


def test_without_kinds_of_errors_no_such_figure(a_result: Any) -> None:
    assert not FIGURE.draw_on(Figure(), comparisons([a_result("gla")])[0])
