"""Accuracy against the distance that an answer must be carried."""

from matplotlib.figure import Figure as Sheet

from linbench.report.figure import ComparisonFigure
from linbench.report.style.layout import draw_panels
from linbench.report.style.lines import draw_slice
from linbench.report.style.wording import SEED_LINES
from linbench.results.comparison import Comparison
from linbench.results.slices import slices


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a panel of lines for all models, or one for each generation."""
    return draw_panels(sheet, comparison, lambda axes, part: draw_slice(axes, part, "distance"))


def _applies(comparison: Comparison) -> bool:
    return any("distance" in slices(result) for result in comparison.results)


FIGURE = ComparisonFigure(
    name="distance",
    order=30,
    draw=draw,
    applies=_applies,
    shows_chance=True,
    after_run=True,
    caption=f"""Test accuracy against the distance over which an answer must be carried. {SEED_LINES}""",
)
