"""Accuracy and stale answers against how often a value had been overwritten."""

from matplotlib.figure import Figure as Sheet

from linbench.report.figure import ComparisonFigure
from linbench.report.style.layout import panels
from linbench.report.style.lines import draw_slice
from linbench.report.style.wording import SEED_LINES
from linbench.results.comparison import Comparison
from linbench.results.slices import slices


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw accuracy on the left and stale answers on the right."""
    drawn = []
    for part, (left, right) in panels(sheet, comparison, across=2):
        drawn += [draw_slice(left, part, "overwrites") and draw_slice(right, part, "overwrites", "stale")]
    return any(drawn)


def _applies(comparison: Comparison) -> bool:
    return any("overwrites" in slices(result) for result in comparison.results)


FIGURE = ComparisonFigure(
    name="overwrites",
    order=40,
    draw=draw,
    applies=_applies,
    shows_chance=True,
    after_run=True,
    caption=f"""Test accuracy (left), and the share of answers that are an older value of the same key
        (right), against how often the value of that key had been overwritten. {SEED_LINES}""",
)
