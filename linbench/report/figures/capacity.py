"""Recall against the number of pairs to be held."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.report.figure import ComparisonFigure
from linbench.report.style.labels import GUIDE
from linbench.report.style.layout import draw_panels
from linbench.report.style.lines import Point, draw_lines
from linbench.report.style.wording import HOLLOW, SEED_LINES, SHADES
from linbench.results.capacity import LEVELS, pairs_of_tests, recall_curve
from linbench.results.comparison import Comparison
from linbench.results.schema.cells import CellResult


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a panel of lines for all models, or one for each generation."""
    return draw_panels(sheet, comparison, draw_recall)


def draw_recall(axes: Axes, comparison: Comparison) -> bool:
    """Draw recall against pairs, and the levels at which pairs count as held; return whether any has it."""

    def points(result: CellResult) -> list[Point] | None:
        curve = recall_curve(result)
        return None if curve is None else [(float(pairs), recall) for pairs, recall in curve]

    axes.set_xscale("log", base=2)
    drawn = draw_lines(axes, comparison, points, "recall")
    pairs = sorted(pairs_of_tests(comparison.results[0]))
    axes.set_xticks(pairs, [f"{count:,}" for count in pairs])
    axes.minorticks_off()
    axes.set_xlabel("pairs to be held")
    for level in LEVELS:
        axes.axhline(level, color=GUIDE, linewidth=0.6, zorder=0)
    return drawn


FIGURE = ComparisonFigure(
    name="capacity",
    order=55,
    draw=draw,
    applies=lambda comparison: bool(pairs_of_tests(comparison.results[0])),
    uses_tests=True,
    caption=f"""Recall against the number of pairs: test accuracy scaled so that chance, which differs with
        the pairs, is 0 and a perfect score 1. Runs that diverged count as chance. Pairs count as held down to
        the grey lines, and the table of capacity says at how many pairs each line is crossed. {SEED_LINES}
        {HOLLOW} {SHADES}""",
)
