"""Speeds and sizes drawn on axes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from linbench.report.style.colors import Style
from linbench.report.style.labels import Named

DECADE = 10
"""A shorter axis has more ticks to each."""

PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


class Line(NamedTuple):
    """name: beside its end. points and bands by length."""

    name: str
    mixer: str
    points: Mapping[int, float]
    bands: Mapping[int, tuple[float, float]] = {}


def against_length(axes: Axes, lines: Sequence[Line], styled: Sequence[Style], title: str) -> list[Named]:
    """Both axes logarithmic, a tick for every length. The ends stand `beside` when all panels of one scale
    are drawn."""
    ends = []
    for line, (colour, dash, mark) in zip(lines, styled, strict=True):
        if not line.points:
            continue
        at, values = list(line.points), list(line.points.values())
        axes.plot(at, values, color=colour, linestyle=dash, marker=mark, markersize=3.2)
        if line.bands:
            axes.fill_between(
                at,
                [line.bands[x][0] for x in at],
                [line.bands[x][1] for x in at],
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
        ends.append(Named(values[-1], at[-1], line.name, colour))
    _scales(axes, sorted({at for line in lines for at in line.points}))
    axes.set_ylabel(title)
    return ends


def rate_ticks(axes: Axes) -> None:
    """Of a logarithmic axis across, whose limits are set."""
    slowest, fastest = axes.get_xlim()
    axes.xaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5) if fastest > DECADE * slowest else (1, 1.5, 2, 3, 4, 5, 7))
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.minorticks_off()


def _scales(axes: Axes, lengths: Sequence[int]) -> None:
    """Logarithmic, of lengths and of what is measured."""
    axes.set(xscale="log", yscale="log", xlabel="tokens T of a sequence")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.minorticks_off()


def short(value: float) -> str:
    """1,500 -> 1.5k."""
    unit, prefix = next(((unit, prefix) for unit, prefix in PREFIXES if value >= 0.9999 * unit), (1.0, ""))
    return f"{value / unit:.3g}{prefix}"
