"""Words in figures: names beside what they name, the level of chance, and what is missing."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from scipy.optimize import isotonic_regression

from linbench.report.style.colors import generations, ink, styles_of
from linbench.results.comparison import Row

CROWD = 8
"""More lines than these cannot be told apart in one panel."""

MISSING = "#8A8A8A"
GUIDE = "#777777"
"""Of lines and words that are no model's."""

HOLLOW = "hollow: undertrained, or its learning rate in doubt"
HOLLOW_BY_NAME = "hollow: undertrained, its learning rate in doubt, or as its name says"

CHANCE = "grey dashes: chance"
CHANCE_LINE: dict[str, Any] = {"color": "#999999", "linewidth": 0.8, "linestyle": (0, (2, 2)), "zorder": 0}
"""How it is named in the label of an axis, and drawn."""

LETTER_SHARE = 0.55
"""The width of a letter, on average: a share of the size of its font."""

LINE_INCHES = 0.145
"""From one name to the next."""

AXES_SHARE = 0.76
"""Of a panel's height, about what its axes have."""

MOST_LINES, LONGEST = 10, 120
"""Lines of a title, and characters of any line, at most: what is longer is cut, so that it leaves room for
the figure."""

HIGHEST, LOWEST = 0.99, 0.01
"""Where names may stand, as shares of the height of the axes."""


class Named(NamedTuple):
    """What has a name: where it is, the name, its colour."""

    value: float
    at: float
    name: str
    colour: str


def colours_of(mixers: Sequence[str]) -> list[str]:
    """Of rows by their mixers; what is none has that of no model."""
    known = [mixer if mixer in generations() else "" for mixer in mixers]
    return [style.colour if mixer else GUIDE for mixer, style in zip(known, styles_of(known), strict=True)]


def beside(axes: Axes, found: Sequence[Named], missing: Sequence[str] = ()) -> None:
    """Names in a column beside axes whose scales and limits are set, as near as may be to the height of what
    they name and with a line to it; below them, in grey, what is missing."""
    place = axes.transScale + axes.transLimits
    rising = sorted(
        ((place.transform((one.at, one.value)), one) for one in found), key=lambda pair: float(pair[0][1])
    )
    heights = spaced(
        [*[LOWEST] * len(missing), *(float(up) for (_, up), _ in rising)],
        LINE_INCHES / (panel_inches(axes) * AXES_SHARE),
    )
    common: dict[str, Any] = {
        "transform": axes.transAxes,
        "va": "center",
        "fontsize": 8.5 if len(heights) <= CROWD else 7.5,
    }
    for height, name in zip(heights, missing, strict=False):
        axes.text(1.05, height, name, color=MISSING, style="italic", **common)
    for height, ((across, up), one) in zip(heights[len(missing) :], rising, strict=True):
        axes.text(1.05, height, one.name, color=ink(one.colour), **common)
        # an arrow of matplotlib's would be cut at what it joins, which takes a third of all the time of
        # drawing
        line = Line2D(
            [across, 1.045],
            [up, height],
            transform=axes.transAxes,
            clip_on=False,
            color=one.colour,
            linewidth=0.5,
            alpha=0.65,
            zorder=1.5,
        )
        axes.add_artist(line)


def whole_figure(axes: Axes) -> Figure:
    """Return the figure that these axes are in, whether directly or in a part of it. matplotlib 3.9 has no
    `get_figure(root=True)`."""
    part = axes.figure
    assert part is not None
    whole = part.figure
    assert isinstance(whole, Figure)
    return whole


def panel_inches(axes: Axes) -> float:
    """The height of the panel that has these axes."""
    spec = axes.get_subplotspec()
    return float(whole_figure(axes).get_figheight()) / (spec.get_gridspec().nrows if spec else 1)


def spaced(heights: Sequence[float], gap: float) -> list[float]:
    """Rising heights, moved as little as may be (the sum of squares) so that they are `gap` apart and between
    `LOWEST` and `HIGHEST`, closer where there are too many."""
    if len(heights) < 2:
        return list(heights)
    gap = min(gap, (HIGHEST - LOWEST) / (len(heights) - 1))
    steps = [gap * i for i in range(len(heights))]
    level = isotonic_regression([height - step for height, step in zip(heights, steps, strict=True)]).x
    return [
        min(max(float(own), LOWEST), HIGHEST - steps[-1]) + step
        for own, step in zip(level, steps, strict=True)
    ]


def chance(axes: Axes, level: float) -> None:
    """A line at it, named beside the axis, where no curve passes."""
    axes.axhline(level, **CHANCE_LINE)
    axes.set_ylabel(f"{axes.get_ylabel()}; {CHANCE}")


def titled(figure: Figure, title: str, size: float | str = "medium") -> None:
    """Over all panels, in as many lines as the width asks for; `size` as matplotlib has it of fonts."""
    letter = LETTER_SHARE * FontProperties(size=size).get_size_in_points() / 72
    figure.suptitle(
        fill(title, int(figure.get_figwidth() / letter), max_lines=MOST_LINES, placeholder=" ..."),
        x=0.01,
        ha="left",
        fontsize=size,
    )


def footnote(figure: Figure, *, tests: int, hollow: bool, lawless: bool) -> None:
    """Write what readers need who see the picture alone: of how many `tests` a number is the mean, if of
    several, and what `hollow` marks are, where there are any. lawless: some of these because a law of layers
    is broken, as their names say."""
    parts = [f"accuracy: the mean of {tests} tests"] if tests > 1 else []
    parts += [HOLLOW_BY_NAME if lawless else HOLLOW] if hollow else []
    if parts:
        figure.supxlabel("; ".join(parts), x=0.01, ha="left", fontsize=7.5, color=GUIDE)


def unmeasured(row: Row) -> str:
    """What became of a model that has no number: `gla: failed 3/3`."""
    return f"{row.label}: {became_of(row)}"


def became_of(row: Row) -> str:
    """The same without the name."""
    return ", ".join(row.marks) or "not measured"
