"""The figure of recall against how much keys are alike."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linbench.report.figures.similarity import similarities
from linbench.results.comparison import comparisons
from linbench.results.schema import Result
from tests.helpers.figures import FIGURES

Make = Callable[..., Result]
SETTINGS = {"kv_pairs": 16, "cluster": 4}


def result_of(make: Make, settings: Sequence[Mapping[str, Any]], seed: int = 0, **more: Any) -> Result:
    """Return a result with a test for each of some settings; the accuracy of each is a tenth more."""
    tests = [
        {
            "settings": own,
            "seq_len": 32,
            "chance": 0.0625,
            "metrics": {"accuracy": 0.1 * number},
            "slices": {},
        }
        for number, own in enumerate(settings, 1)
    ]
    result = make("deltanet", seed, tests=tests, chance=0.0625, **more)
    result["cell"]["task"]["test"] = [{"settings": own} for own in settings]
    return result


def alike(*cosines: float) -> list[dict[str, Any]]:
    return [{**SETTINGS, "similarity": cosine} for cosine in cosines]


def drawn(*results: Result) -> Axes:
    sheet = Figure()
    (found,) = comparisons(results)
    assert FIGURES["similarity"].draw_on(sheet, found)
    (axes,) = sheet.axes
    return axes


def levels(axes: Axes) -> list[float]:
    """Return the heights of all level lines that are drawn from side to side."""
    return sorted({line.get_ydata()[0] for line in axes.lines if list(line.get_xdata()) == [0, 1]})  # type: ignore[index, arg-type]


def test_a_line_rises_through_the_similarities_with_the_share_of_a_cluster_below(a_result: Make) -> None:
    axes = drawn(result_of(a_result, alike(0.9, 0.0, 0.3)))
    (line,) = [line for line in axes.lines if len(line.get_xdata()) == 3]  # type: ignore[arg-type]
    assert list(line.get_xdata()) == [0.0, 0.3, 0.9]  # type: ignore[arg-type]
    assert list(line.get_ydata()) == pytest.approx([0.2, 0.3, 0.1])  # type: ignore[arg-type]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "0.3", "0.9"]
    assert levels(axes) == [0.0625, 0.25]


def test_a_diverged_run_is_at_chance(a_result: Make) -> None:
    one = result_of(a_result, alike(0.0, 0.6))
    diverged = result_of(a_result, alike(0.0, 0.6), 1, status="diverged", metrics={})
    mean = max(drawn(one, diverged).lines, key=lambda line: line.get_linewidth())
    assert list(mean.get_ydata()) == pytest.approx([(0.1 + 0.0625) / 2, (0.2 + 0.0625) / 2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        alike(0.6),
        alike(0.6, 0.6),
        [*alike(0.6), {**SETTINGS, "similarity": 0.9, "cluster": 2}],
        [{"kv_pairs": 4}, {"kv_pairs": 8}],
        [*alike(0.6), {**SETTINGS, "similarity": "0.9"}],
    ],
)
def test_tests_that_differ_in_more_or_in_less_have_no_figure(
    a_result: Make, settings: list[dict[str, Any]]
) -> None:
    result = result_of(a_result, settings)
    assert similarities(result) == []
    (found,) = comparisons([result])
    assert not FIGURES["similarity"].applies(found)


def test_a_cluster_that_is_not_told_has_no_line(a_result: Make) -> None:
    axes = drawn(result_of(a_result, [{"similarity": 0.0}, {"similarity": 0.9}]))
    assert levels(axes) == [0.0625]
