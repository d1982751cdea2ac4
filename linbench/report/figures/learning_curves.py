"""Learning curves: validation accuracy over training."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import FuncFormatter, MaxNLocator

from linbench.report.figure import ComparisonFigure
from linbench.report.style.labels import Named, chance_line, label_lines, unmeasured
from linbench.report.style.layout import draw_panels
from linbench.report.style.lines import draw_seeds, marker_face, styled
from linbench.report.style.wording import HOLLOW, SEED_LINES
from linbench.results.comparison import Comparison
from linbench.results.record import FINAL
from linbench.results.schema.cells import Point
from linbench.results.scores import validation_levels


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a panel of curves for all models, or one for each generation."""
    return draw_panels(sheet, comparison, draw_curves)


def draw_curves(axes: Axes, comparison: Comparison) -> bool:
    """Draw validation accuracy against tokens seen; return whether any model has a curve."""
    ends, missing = [], []
    for row, (colour, dash, mark) in styled(comparison.rows):
        counted = [result for result in row.results if result["status"] in FINAL]
        longest: list[Point] = max((result["curve"] for result in counted), key=len, default=[])
        if not longest:
            missing.append(unmeasured(row))
            continue
        padded = []
        for result in counted:
            curve = [point["accuracy"] for point in result["curve"]]
            padded.append(curve + [validation_levels(result).chance] * (len(longest) - len(curve)))
        tokens = [point["tokens"] for point in longest]
        mean = draw_seeds(axes, tokens, padded, colour, models=len(comparison.rows))
        face = marker_face(row, colour)
        axes.plot(tokens, mean, color=colour, linestyle=dash)
        axes.plot(tokens[-1:], mean[-1:], marker=mark, markersize=4.5, color=colour, markerfacecolor=face)
        ends.append(Named(mean[-1], tokens[-1], row.label, colour))
    axes.set(xlabel="tokens seen in training", ylabel="validation accuracy", ylim=(-0.02, 1.04))
    chance_line(axes, validation_levels(comparison.results[0]).chance)
    label_lines(axes, ends, missing)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:g} M" if value else "0"))
    return bool(ends)


FIGURE = ComparisonFigure(
    name="learning-curves",
    order=10,
    draw=draw,
    after_run=True,
    caption=f"""Validation accuracy against the number of tokens seen in training. {SEED_LINES} From the step
        at which a run diverged, it counts as chance. {HOLLOW}""",
)
