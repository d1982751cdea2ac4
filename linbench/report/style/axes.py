"""Axes of speeds and sizes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from linbench.report.style.colors import Style
from linbench.report.style.labels import Named

TICKS_OF_A_DECADE = ((10, (1, 1.5, 2, 3, 4, 5, 7)), (1e4, (1, 2, 5)))
"""The ticks of a decade, by the largest ratio of an axis's ends; longer axes have one tick a decade."""

PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


class Line(NamedTuple):
    """A line against length, with its points and bands by length; its name stands beside its end."""

    name: str
    mixer: str
    points: Mapping[int, float]
    bands: Mapping[int, tuple[float, float]] = {}


def draw_against_length(
    axes: Axes, lines: Sequence[Line], styled: Sequence[Style], title: str
) -> list[Named]:
    """Draw lines against length on two logarithmic axes.

    Returns:
        the ends of the lines, for `label_lines` once all panels with this scale are drawn.
    """
    ends = []
    for line, (colour, dash, mark) in zip(lines, styled, strict=True):
        if not line.points:
            continue
        at, values = list(line.points), list(line.points.values())
        axes.plot(at, values, color=colour, linestyle=dash, marker=mark, markersize=3.2)
        if line.bands:
            low, high = [line.bands[x][0] for x in at], [line.bands[x][1] for x in at]
            axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        ends.append(Named(values[-1], at[-1], line.name, colour))
    log_log(axes, sorted({at for line in lines for at in line.points}))
    axes.set_ylabel(title)
    return ends


def log_ticks(lowest: float, highest: float, *, room: float = 1.0) -> LogLocator:
    """Return the ticks of a logarithmic axis with these ends: fewer to a decade, the longer the axis is.

    Args:
        room: the width that the axis has for its decades, as a share of the usual one.
    """
    for ratio, ticks in TICKS_OF_A_DECADE:
        if highest <= ratio**room * lowest:
            return LogLocator(subs=ticks, numticks=12)
    return LogLocator(numticks=8)


def rate_ticks(axes: Axes) -> None:
    """Set the ticks of a logarithmic axis across whose limits are set."""
    axes.xaxis.set_major_locator(log_ticks(*axes.get_xlim()))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: si_prefix(value)))
    axes.minorticks_off()


def log_log(axes: Axes, lengths: Sequence[int]) -> None:
    """Make both axes logarithmic, with a tick across for every length."""
    axes.set(xscale="log", yscale="log", xlabel="tokens T of a sequence")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: si_prefix(value)))
    axes.minorticks_off()


def si_prefix(value: float) -> str:
    """Return a number with a prefix of its unit: 1,500 as `1.5k`."""
    for unit, prefix in PREFIXES:
        # what three digits round up to a unit has its prefix, too
        if value >= 0.9999 * unit:
            return f"{value / unit:.3g}{prefix}"
    return f"{value:.3g}"
