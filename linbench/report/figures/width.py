"""Accuracy against the width of the model."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.report.figure import ComparisonFigure
from linbench.report.style.layout import draw_panels
from linbench.report.style.sizes import distinct_sizes, draw_sizes, sized
from linbench.report.style.wording import HOLLOW, SEED_BARS
from linbench.results.comparison import Comparison


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a panel for all models, or one for each generation."""
    return draw_panels(
        sheet, comparison, lambda axes, part: draw_panel(axes, part, comparison), widths="together"
    )


def draw_panel(axes: Axes, comparison: Comparison, whole: Comparison) -> bool:
    """Draw the models of a panel, and in grey those of others; return whether there is anything to draw."""
    if not draw_sizes(axes, comparison, whole, "width"):
        return False
    widths = sorted({one.at for one in sized(whole.rows, "width")})
    axes.set_xticks(widths, [f"{width:g}" for width in widths])
    axes.set_xlabel("width of the model")
    return True


FIGURE = ComparisonFigure(
    name="width",
    order=80,
    draw=draw,
    applies=lambda comparison: len(distinct_sizes(comparison.rows, "width")) > 1,
    uses_tests=True,
    averages_tests=True,
    shows_chance=True,
    caption=f"""Test accuracy against the width of the model. If there are several tests, accuracy is their
        mean. {SEED_BARS} Marks of one width are moved apart so that they can be seen. Grey dots are the
        models of other panels. {HOLLOW} A note beside a name says at which widths the model was measured, if
        not at all.""",
)
