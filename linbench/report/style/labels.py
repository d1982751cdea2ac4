"""Text in figures: names beside lines and marks, the chance level, titles and notes."""

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

MAX_LINES_PER_PANEL = 8
"""The most lines that can be told apart in one panel."""

MISSING = "#8A8A8A"
"""The colour of the names of models without a value."""

NOT_MEASURED = "not measured"
"""The word beside the name of a model without a value, where there is no other reason."""

GUIDE = "#777777"
"""The colour of lines and text that belong to no model."""

HOLLOW_NOTE = "hollow: undertrained, or its learning rate in doubt"
HOLLOW_NOTE_BY_NAME = "hollow: undertrained, its learning rate in doubt, or as its name says"

CHANCE = "grey dashes: chance"
"""The explanation of the chance line, in the label of an axis."""

CHANCE_LINE: dict[str, Any] = {"color": "#999999", "linewidth": 0.8, "linestyle": (0, (2, 2)), "zorder": 0}
"""The style of the chance line."""

LETTER_SHARE = 0.55
"""The mean width of a letter, as a share of the size of its font."""

LINE_INCHES = 0.145
"""The distance from one name to the next."""

AXES_SHARE = 0.76
"""The share of a panel's height that its axes take, roughly."""

MOST_LINES = 10
"""The most lines of a title; what is longer is cut, so that it leaves room for the figure."""

LONGEST = 120
"""The most characters of a line of text; what is longer is cut."""

HIGHEST, LOWEST = 0.99, 0.01
"""The limits between which names may stand, as shares of the height of the axes."""


class Named(NamedTuple):
    """A name to be written beside the axes, with the point in the axes that it belongs to."""

    value: float
    at: float
    name: str
    colour: str


def colours_of(mixers: Sequence[str]) -> list[str]:
    """Return the colours of rows by their mixers; `GUIDE` for what is no registered mixer."""
    known = [mixer if mixer in generations() else "" for mixer in mixers]
    return [style.colour if mixer else GUIDE for mixer, style in zip(known, styles_of(known), strict=True)]


def label_lines(axes: Axes, found: Sequence[Named], missing: Sequence[str] = ()) -> None:
    """Write names in a column beside axes, each joined by a thin line to the point that it names.

    A name stands as near as may be to the height of its point.

    Args:
        axes: whose scales and limits are set.
        found: the names with their points.
        missing: names of models without a value, which stand below the others in grey.
    """
    to_axes = axes.transScale + axes.transLimits
    places = [(to_axes.transform((one.at, one.value)), one) for one in found]
    rising = sorted(places, key=lambda place: float(place[0][1]))
    heights = spread_labels(
        [*[LOWEST] * len(missing), *(float(up) for (_, up), _ in rising)],
        LINE_INCHES / (panel_inches(axes) * AXES_SHARE),
    )
    common: dict[str, Any] = {
        "transform": axes.transAxes,
        "va": "center",
        "fontsize": 8.5 if len(heights) <= MAX_LINES_PER_PANEL else 7.5,
    }
    for height, name in zip(heights, missing, strict=False):
        axes.text(1.05, height, name, color=MISSING, style="italic", **common)
    for height, ((across, up), one) in zip(heights[len(missing) :], rising, strict=True):
        axes.text(1.05, height, one.name, color=ink(one.colour), **common)
        # no arrow of matplotlib's: cutting it at its ends takes a third of all the time of drawing
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
    """Return the figure that axes are in, whether directly or in a part of it."""
    # matplotlib 3.9 has no `get_figure(root=True)`
    part = axes.figure
    assert part is not None
    whole = part.figure
    assert isinstance(whole, Figure)
    return whole


def panel_inches(axes: Axes) -> float:
    """Return the height of the panel that has these axes."""
    spec = axes.get_subplotspec()
    return float(whole_figure(axes).get_figheight()) / (spec.get_gridspec().nrows if spec else 1)


def spread_labels(heights: Sequence[float], gap: float) -> list[float]:
    """Return rising heights, moved as little as possible so that no two are closer than `gap`.

    The sum of the squares of all moves is the least possible. All heights come to lie between `LOWEST` and
    `HIGHEST`, closer than `gap` where there are too many.
    """
    if len(heights) < 2:
        return list(heights)
    gap = min(gap, (HIGHEST - LOWEST) / (len(heights) - 1))
    steps = [gap * i for i in range(len(heights))]
    level = isotonic_regression([height - step for height, step in zip(heights, steps, strict=True)]).x
    return [
        min(max(float(own), LOWEST), HIGHEST - steps[-1]) + step
        for own, step in zip(level, steps, strict=True)
    ]


def chance_line(axes: Axes, level: float) -> None:
    """Draw a line at the chance level. The label of the axis explains it, where no curve passes."""
    axes.axhline(level, **CHANCE_LINE)
    axes.set_ylabel(f"{axes.get_ylabel()}; {CHANCE}")


def add_title(figure: Figure, title: str, size: float | str = "medium") -> None:
    """Write a title over all panels, in as many lines as it needs; size: of the font, as for matplotlib."""
    letter = LETTER_SHARE * FontProperties(size=size).get_size_in_points() / 72
    figure.suptitle(
        fill(title, int(figure.get_figwidth() / letter), max_lines=MOST_LINES, placeholder=" ..."),
        x=0.01,
        ha="left",
        fontsize=size,
    )


def footnote(figure: Figure, *, tests: int, hollow: bool, lawless: bool) -> None:
    """Write below a figure what a reader needs who sees the picture without its caption.

    Args:
        figure: to write on.
        tests: the number of tests of which an accuracy is the mean.
        hollow: whether any mark is hollow.
        lawless: whether some are because a layer breaks a law, as the names of the models say.
    """
    parts = [f"accuracy: the mean of {tests} tests"] if tests > 1 else []
    if hollow:
        parts.append(HOLLOW_NOTE_BY_NAME if lawless else HOLLOW_NOTE)
    if parts:
        figure.supxlabel("; ".join(parts), x=0.01, ha="left", fontsize=7.5, color=GUIDE)


def unmeasured(row: Row) -> str:
    """Return the name of a model without a value, and why it has none: `gla: failed 3/3`."""
    return f"{row.label}: {status_summary(row)}"


def status_summary(row: Row) -> str:
    """Return the marks of a model without a value: `failed 3/3`."""
    return ", ".join(row.marks) or NOT_MEASURED
