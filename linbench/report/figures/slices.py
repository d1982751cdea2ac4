"""Accuracy against all further properties that answers are told apart by."""

from matplotlib.figure import Figure as Sheet

from linbench.report.figure import ComparisonFigure
from linbench.report.figures import comparison_figures
from linbench.report.style.layout import panels
from linbench.report.style.lines import draw_slice
from linbench.report.style.wording import SEED_LINES
from linbench.results.comparison import Comparison
from linbench.results.slices import slices

MOST = 4
"""The most slices that are drawn side by side."""


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw the slices that have no figure of their own side by side."""
    names = other_slices(comparison)
    drawn = []
    for part, row in panels(sheet, comparison, across=len(names)):
        drawn += [draw_slice(axes, part, name) for axes, name in zip(row, names, strict=True)]
    return any(drawn)


def other_slices(comparison: Comparison) -> list[str]:
    """Return the slices of a comparison that have no figure of their own."""
    own = {figure.name for figure in comparison_figures()}
    found = dict.fromkeys(name for result in comparison.results for name in slices(result) if name not in own)
    return list(found)[:MOST]


def _applies(comparison: Comparison) -> bool:
    return bool(other_slices(comparison))


FIGURE = ComparisonFigure(
    name="slices",
    order=100,
    draw=draw,
    applies=_applies,
    shows_chance=True,
    caption=f"""Test accuracy against other properties of a question. {SEED_LINES}""",
)
