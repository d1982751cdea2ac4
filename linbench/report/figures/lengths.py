"""Accuracy against the length of the tested sequences."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.report.figure import ComparisonFigure
from linbench.report.style.layout import draw_panels
from linbench.report.style.lines import Point, draw_lines
from linbench.report.style.wording import SEED_LINES
from linbench.results.comparison import Comparison
from linbench.results.schema.cells import CellResult
from linbench.results.scores import accuracies_by_test


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a panel of lines for all models, or one for each generation."""
    return draw_panels(sheet, comparison, draw_lengths)


def _lengths(result: CellResult) -> list[int]:
    return [test["seq_len"] for test in result.get("tests", [])]


def _applies(comparison: Comparison) -> bool:
    return all(len(set(_lengths(result))) > 1 for result in comparison.results)


def draw_lengths(axes: Axes, comparison: Comparison) -> bool:
    """Draw the accuracy of each test against its length; return whether any model has one."""

    def points(result: CellResult) -> list[Point] | None:
        accuracies = accuracies_by_test(result)
        return None if accuracies is None else sorted(zip(_lengths(result), accuracies, strict=True))

    drawn = draw_lines(axes, comparison, points, "accuracy")
    lengths = sorted(set(_lengths(comparison.results[0])))
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, list(map(str, lengths)))
    axes.minorticks_off()
    axes.set_xlabel("tokens of a tested sequence")
    return drawn


FIGURE = ComparisonFigure(
    name="lengths",
    order=60,
    draw=draw,
    applies=_applies,
    uses_tests=True,
    shows_chance=True,
    after_run=True,
    caption=f"""Test accuracy against the length of the tested sequences. {SEED_LINES}""",
)
