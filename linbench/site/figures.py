"""The figures that only the site has: the ranks of one variant, and where it stands among all."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import FuncFormatter

from linbench.common.files import file_name
from linbench.common.hashing import digest
from linbench.report.figure import Drawing
from linbench.report.style.axes import si_prefix
from linbench.report.style.colors import ink
from linbench.report.style.labels import GUIDE, colours_of
from linbench.results.capacity import Ranks

FEWEST_SPOKES = 3
"""The fewest questions that a variant must have been asked for a radar of them."""

FEWEST_POINTS = 10
"""The fewest variants with which a ladder of budgets is shown before more variants at a single one."""

OTHERS, GRID = "#BBBBBB", "#DDDDDD"
"""The colours of the other variants, and of rings and spokes."""

TINY = 7.5
"""The size in points of all words."""

RADAR_CAPTION = (
    "A spoke for each question; the further out, the better. The dot is the rank by the estimate, at the rim"
    " the best of all variants that were asked, at the centre the worst. The line on a spoke spans the ranks"
    " that the intervals leave open."
)

SCATTER_CAPTION = (
    "This variant in colour, with 95 % intervals; grey dots are all others. The line is the Pareto front: the"
    " best score of all that carry no more floats, or are no slower."
)


class Spoke(NamedTuple):
    """The rank of a variant in a question among a number of variants."""

    name: str
    rank: float
    open_: Ranks
    among: int

    def outward(self, rank: float) -> float:
        """Return how far out a rank stands: 1 for the best, 0 for the last."""
        return (self.among - rank) / (self.among - 1) if self.among > 1 else 1.0


class Point(NamedTuple):
    """A variant among others: a size or speed, and a score with its interval, whose ends may be infinite."""

    at: float
    score: float
    low: float
    high: float


class Panel(NamedTuple):
    """Points of variants by their labels, with the names of the axes."""

    across: str
    up: str
    points: Mapping[str, Sequence[Point]]
    more_is_better: bool
    """True if large values across are good, as of speeds; small ones are of states."""
    setting: str
    """The way in which the points were measured."""


def radar(variant: str, spokes: Sequence[Spoke]) -> Drawing:
    """Return the ranks of a variant by question, as a radar."""
    return Drawing(
        file_name(f"{variant} ranks"),
        partial(_draw_radar, variant=variant, spokes=spokes),
        RADAR_CAPTION,
        digest([variant, spokes]),
    )


def scatter(variant: str, labels: Sequence[str], panels: Sequence[Panel]) -> Drawing:
    """Return where a variant stands among all, with the Pareto front of each panel.

    Args:
        variant: its name.
        labels: of the points that are its own.
        panels: what is shown, side by side.
    """
    draw = partial(_draw_scatter, variant=variant, labels=labels, panels=panels)
    caption = " ".join([SCATTER_CAPTION, *(panel.setting for panel in panels)])
    # as words: JSON has no infinite numbers
    slug, prints = file_name(f"{variant} among all"), digest([variant, labels, str(panels)])
    return Drawing(slug, draw, caption, prints, note=SCATTER_CAPTION)


def _draw_radar(sheet: Sheet, variant: str, spokes: Sequence[Spoke]) -> bool:
    sheet.set_size_inches(5.4, 3.2)
    axes = sheet.subplots()
    colour = _colour(variant)
    angles = [math.pi / 2 - 2 * math.pi * place / len(spokes) for place in range(len(spokes))]
    turns = [turn / 32 * math.pi for turn in range(65)]
    for ring in (0.5, 1.0):
        axes.plot(
            [ring * math.cos(t) for t in turns],
            [ring * math.sin(t) for t in turns],
            color=GRID,
            linewidth=0.8,
        )
    ends = [
        (angle, spoke.outward(spoke.rank), spoke.outward(spoke.open_.worst), spoke.outward(spoke.open_.best))
        for angle, spoke in zip(angles, spokes, strict=True)
    ]
    axes.fill(
        [m * math.cos(a) for a, m, *_ in ends],
        [m * math.sin(a) for a, m, *_ in ends],
        color=colour,
        alpha=0.15,
    )
    for (angle, middle, low, high), spoke in zip(ends, spokes, strict=True):
        x, y = math.cos(angle), math.sin(angle)
        axes.plot([0, x], [0, y], color=GRID, linewidth=0.8)
        axes.plot(
            [low * x, high * x], [low * y, high * y], color=colour, linewidth=2.2, solid_capstyle="round"
        )
        axes.plot([middle * x], [middle * y], "o", color=colour, markersize=5)
        side = "center" if abs(x) < 0.1 else "left" if x > 0 else "right"
        words = f"{spoke.name}\nrank {spoke.open_} of {spoke.among}"
        axes.text(1.09 * x, 1.09 * y, words, ha=side, va=_height(y), fontsize=TINY)
    axes.set(xlim=(-2.3, 2.3), ylim=(-1.4, 1.4), aspect="equal")
    axes.set_axis_off()
    return True


def _height(y: float) -> str:
    """Return where words stand at a spoke's end, so that they are outside of the rim."""
    return "center" if abs(y) < 0.8 else "bottom" if y > 0 else "top"


def _draw_scatter(sheet: Sheet, variant: str, labels: Sequence[str], panels: Sequence[Panel]) -> bool:
    sheet.set_size_inches(3.6 * len(panels), 2.8)
    for axes, panel in zip(sheet.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
        _draw_panel(axes, panel, variant, labels)
    return True


def _draw_panel(axes: Axes, panel: Panel, variant: str, labels: Sequence[str]) -> None:
    others = [one for label, own in panel.points.items() if label not in labels for one in own]
    axes.plot([one.at for one in others], [one.score for one in others], "o", color=OTHERS, markersize=3.4)
    best = front(panel)
    steps, scores = [one.at for one in best], [one.score for one in best]
    axes.plot(steps, scores, drawstyle="steps-post", color=GUIDE, linewidth=0.9, zorder=0.5)
    colour = _colour(variant)
    for label in (label for label in labels if label in panel.points):
        own = sorted(panel.points[label])
        axes.plot(
            [one.at for one in own], [one.score for one in own], "-o", color=colour, markersize=5, linewidth=1
        )
        for one in own:
            ends = [end if math.isfinite(end) else one.score for end in (one.low, one.high)]
            axes.plot([one.at] * 2, ends, color=colour, linewidth=1.4)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: si_prefix(value)))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    axes.set_xlabel(panel.across, fontsize=TINY)
    axes.set_ylabel(panel.up, fontsize=TINY)
    axes.tick_params(labelsize=TINY)


def front(panel: Panel) -> list[Point]:
    """Return the points that no other beats in both ways, from the best size or speed on."""
    every = [one for own in panel.points.values() for one in own]
    best = list[Point]()
    for one in sorted(every, key=lambda one: (-one.at if panel.more_is_better else one.at, -one.score)):
        if not best or one.score > best[-1].score:
            best.append(one)
    return best


def _colour(variant: str) -> str:
    return ink(colours_of([variant])[0])
