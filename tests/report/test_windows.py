from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from linbench.report.figures.learning_rates import COLUMN_INCHES, FIGURE, columns, tried, window
from linbench.results.comparison import comparisons

GRID = (1e-4, 1e-3, 1e-2, 1e-1)


def searched(
    make: Any,
    label: str,
    *accuracies: float,
    seeds: tuple[int, ...] = (1000,),
    chosen: float = 1e-2,
    rates: tuple[float, ...] = GRID,
) -> list[Any]:
    """A report at the chosen rate, and tuning runs at every rate of which each seed is two hundredths worse
    than the one before."""
    tuning = [
        make(
            label,
            seed,
            lr=rate,
            purpose="tuning",
            curve=[{"step": 1, "tokens": 100, "accuracy": value - 0.02 * i, "loss": 1.0, "nll": 1.0}],
        )
        for rate, value in zip(rates, accuracies, strict=False)
        for i, seed in enumerate(seeds)
    ]
    return [make(label, 0, lr=chosen), *tuning]


def test_tuning_runs_go_with_the_row_of_their_model_and_no_other(a_result: Any) -> None:
    results = searched(a_result, "deltanet", 0.1, 0.95, 0.99, seeds=(1000, 1001)) + searched(
        a_result, "gla", 0.2
    )
    (found,) = comparisons(results)
    assert {row.label: (len(row.results), len(row.tuning)) for row in found.rows} == {
        "deltanet": (1, 6),
        "gla": (1, 1),
    }
    assert tried(found.rows[0]) == [
        (rate, pytest.approx([value, value - 0.02]))
        for rate, value in zip(GRID, (0.1, 0.95, 0.99), strict=False)
    ]


def test_a_rate_at_which_training_diverged_counts_as_chance_and_one_without_a_number_is_left_out(
    a_result: Any,
) -> None:
    found = searched(a_result, "deltanet", 0.1, 0.95, 0.99)
    found[2] |= {"status": "diverged", "curve": []}
    found[3] |= {"status": "oom", "curve": []}
    assert tried(comparisons(found)[0].rows[0]) == [(1e-4, [0.1]), (1e-3, [0.125])]


@pytest.mark.parametrize(
    ("accuracies", "said"),
    [
        ((0.1, 0.9, 0.9, 0.1), "1.0"),  # from one rate to the other
        ((0.8, 1.0, 0.8, 0.1), "1.0"),  # halfway to its neighbours
        ((0.1, 0.1, 1.0, 0.1), "0.2"),
        ((0.1, 0.9, 1.0, 1.0), "≥ 2.0"),
        ((1.0, 0.1, 0.1, 1.0), "≥ 0.1"),  # around the best alone
        ((0.1, 0.1, 0.91, 0.1), "< 0.1"),
        ((0.1, 0.89, 0.1, 0.1), "None"),
    ],
)
def test_the_window_is_as_wide_as_nine_tenths_are_reached(accuracies: tuple[float, ...], said: str) -> None:
    assert str(window([(rate, [value]) for rate, value in zip(GRID, accuracies, strict=True)])) == said


def test_every_rate_has_a_strip_for_each_seed_the_chosen_a_line_and_the_window_a_frame(a_result: Any) -> None:
    (found,) = comparisons(
        [*searched(a_result, "deltanet", 0.1, 0.95, 0.99, 0.2, seeds=(1000, 1001)), a_result("gla")]
    )
    figure = Figure()
    assert FIGURE.draw_on(figure, found)
    (axes,) = figure.axes
    words = [text.get_text() for text in axes.texts]
    assert {"0.09", "0.94", "0.98", "0.19"} <= set(words)
    assert "not searched for" in words
    strips = [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_linewidth() == 0]
    (frame,) = (patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_linewidth() > 0)
    assert len(strips) == 8
    assert (frame.get_x(), frame.get_width()) == (pytest.approx(0.52), pytest.approx(1.96))
    (under,) = axes.lines
    assert sum(under.get_xdata()) / 2 == pytest.approx(GRID.index(1e-2))  # type: ignore[arg-type]
    assert [text.get_text() for text in axes.texts if text.get_weight() == "bold"] == ["0.98"]
    assert not FIGURE.draw_on(Figure(), comparisons([a_result("gla")])[0])


@pytest.mark.parametrize(
    ("accuracies", "marks", "bold"),
    [
        ((0.1, 0.12, 0.16), [], []),  # 0.04 of the way from chance to 1
        ((0.1, 0.12, 0.18), [], ["0.18"]),
        ((0.1, 0.2, 0.95), [], ["0.95"]),
        ((0.1, 0.2, 0.95), ["lr_edge"], []),
        ((0.1, 0.2, 0.95), ["lr_untried"], []),
        ((0.1, 0.2, 0.95), ["undertrained"], ["0.95"]),
    ],
)
def test_a_choice_in_doubt_has_a_hollow_line(
    a_result: Any, accuracies: tuple[float, ...], marks: list[str], bold: list[str]
) -> None:
    report, *tuning = searched(a_result, "deltanet", *accuracies)
    (found,) = comparisons([{**report, "marks": marks}, *tuning])
    figure = Figure()
    assert FIGURE.draw_on(figure, found)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts if text.get_weight() == "bold"] == bold
    assert [line.get_color() == "white" for line in axes.lines] == ([False] if bold else [False, True]), (
        "white lies upon the colour"
    )
    assert all(sum(line.get_xdata()) / 2 == pytest.approx(GRID.index(1e-2)) for line in axes.lines)  # type: ignore[arg-type]


def test_what_is_below_the_bound_is_not_rounded_up_to_it(a_result: Any) -> None:
    (found,) = comparisons(searched(a_result, "deltanet", 0.1, 0.8951, 0.8999))
    figure = Figure()
    assert FIGURE.draw_on(figure, found)
    words = {text.get_text() for text in figure.axes[0].texts}
    assert {"<0.90", "–"} <= words
    assert "0.90" not in words


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([1e-2, 1e-4, 1e-3], [1e-4, 1e-3, 1e-2]),
        ([1e-3, 3.16e-3, 1.78e-3, 1e-2], [1e-3, 1.78e-3, 3.16e-3, 5.62e-3, 1e-2]),
        ([1.78e-3, 1e-3, 2e-3], [1e-3, 1.78e-3, 2e-3]),  # one that no search tries
    ],
)
def test_with_rates_between_half_decades_every_quarter_decade_has_a_column(
    rates: list[float], expected: list[float]
) -> None:
    assert columns(rates) == expected


def test_quarter_decades_stand_where_they_lie_and_have_their_names_a_line_lower(a_result: Any) -> None:
    rates = (1e-3, 3.16e-3, 5.62e-3, 1e-2, 1.78e-2)
    (found,) = comparisons(searched(a_result, "deltanet", 0.1, 0.5, 0.95, 0.99, 0.92, rates=rates))
    figure = Figure()
    assert FIGURE.draw_on(figure, found)
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == ["1e-3", "\n1.78e-3", "3.16e-3", "\n5.62e-3", "1e-2", "\n1.78e-2"]
    places = {
        words: text.get_position()[0] for text in axes.texts if (words := text.get_text()).startswith("0.")
    }
    assert places == {"0.10": 0, "0.50": 2, "0.95": 3, "0.99": 4, "0.92": 5}
    (frame,) = (patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_linewidth() > 0)
    assert (frame.get_x(), frame.get_width()) == (pytest.approx(2.52), pytest.approx(2.96))
    (under,) = axes.lines
    assert sum(under.get_xdata()) / 2 == pytest.approx(4)  # type: ignore[arg-type]


def test_a_sheet_grows_with_columns_for_which_there_is_no_room(a_result: Any) -> None:
    def width(rates: tuple[float, ...]) -> float:
        (found,) = comparisons(searched(a_result, "deltanet", *[0.5] * len(rates), rates=rates))
        figure = Figure()
        assert FIGURE.draw_on(figure, found)
        return float(figure.get_figwidth())

    usual = width((1e-3, 1e-2))
    assert width((1e-5, 1.78e-5, 1e-1)) == usual
    assert width((1e-5, 1.78e-5, 1.0)) == pytest.approx(usual + 4 * COLUMN_INCHES)
