"""Accuracy against the size of the state that a sequence carries."""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import FuncFormatter, LogLocator

from linbench.report.figure import ComparisonFigure
from linbench.report.style.labels import GUIDE
from linbench.report.style.layout import draw_panels
from linbench.report.style.sizes import Sized, distinct_sizes, draw_sizes, sized
from linbench.report.style.wording import HOLLOW, SEED_BARS, SHADES
from linbench.results.comparison import Comparison

TEXT_HEIGHT = 0.07
"""The height of a line of text with the room around it, in accuracies."""


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a panel for all models, or one for each generation."""
    return draw_panels(
        sheet, comparison, lambda axes, part: draw_panel(axes, part, comparison), widths="together"
    )


def draw_panel(axes: Axes, comparison: Comparison, whole: Comparison) -> bool:
    """Draw the models of a panel with the Pareto front of all; return whether there is anything to draw."""
    if not draw_sizes(axes, comparison, whole, "state_floats"):
        return False
    _front(axes, sized(whole.rows, "state_floats"), comparison.results[0]["chance"])
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value)))
    axes.set_xlabel("floats carried from token to token, all layers")
    return True


def _thousands(value: float) -> str:
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def _front(axes: Axes, every: Sequence[Sized], chance: float) -> None:
    """Draw the Pareto front: the best accuracy that any model of at most this size reaches.

    Models that take part in no verdict are left out. The name of the front stands where the line of chance
    does not go through it.
    """
    best = list[Sized]()
    for one in sorted(every, key=lambda one: (one.at, -one.mean)):
        if one.row.eligible and (not best or one.mean > best[-1].mean):
            best.append(one)
    if not best:
        return
    at = [one.at for one in best] + [max(one.at for one in every)]
    axes.plot(
        at,
        [one.mean for one in best] + [best[-1].mean],
        drawstyle="steps-post",
        color="#CCCCCC",
        linewidth=2.4,
        zorder=0.5,
        solid_capstyle="butt",
    )
    left, right = max(pairwise(at), key=lambda step: step[1] / step[0])
    level = next(one.mean for one in best if one.at == left)
    below = TEXT_HEIGHT < level < chance < level + TEXT_HEIGHT
    axes.annotate(
        "Pareto front",
        ((left * right) ** 0.5, level),
        (0, -3 if below else 3),
        textcoords="offset points",
        color=GUIDE,
        fontsize=7.5,
        ha="center",
        va="top" if below else "baseline",
    )


FIGURE = ComparisonFigure(
    name="state",
    order=70,
    draw=draw,
    applies=lambda comparison: len(distinct_sizes(comparison.rows, "state_floats")) > 1,
    uses_tests=True,
    averages_tests=True,
    shows_chance=True,
    caption=f"""Test accuracy against the number of floats that one sequence of the longest tested length
        carries from token to token. If there are several tests, accuracy is their mean. {SEED_BARS} A line
        joins the sizes of one model. The grey step line is the Pareto front: the best accuracy of all models
        that carry at most so many floats. Grey dots are the models of other panels. {HOLLOW} It is no part of
        the front either. {SHADES}""",
)
