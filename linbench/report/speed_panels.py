"""Speeds and sizes drawn on axes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from linbench.report.colours import Style, styles_of
from linbench.report.labels import Named, beside, chance

if TYPE_CHECKING:
    from linbench.report.forms import Ladder
    from linbench.report.tradeoff import Tradeoff

DECADE = 10
"""A shorter axis has more ticks to each."""

BELOW, ABOVE = 0.03, 0.04
"""Of the height from the worst accuracy, or chance, to 1: what is left free."""

PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


class Line(NamedTuple):
    """name: beside its end. points and bands by length."""

    name: str
    mixer: str
    points: Mapping[int, float]
    bands: Mapping[int, tuple[float, float]] = {}


def against_length(axes: Axes, lines: Sequence[Line], styled: Sequence[Style], title: str) -> list[Named]:
    """Both axes logarithmic, a tick for every length. The ends stand `beside` when all panels of one scale are drawn."""
    ends = []
    for line, (colour, dash, mark) in zip(lines, styled, strict=True):
        if not line.points:
            continue
        at, values = list(line.points), list(line.points.values())
        axes.plot(at, values, color=colour, linestyle=dash, marker=mark, markersize=3.2)
        if line.bands:
            axes.fill_between(at, [line.bands[x][0] for x in at], [line.bands[x][1] for x in at], color=colour, alpha=0.15, linewidth=0)
        ends.append(Named(values[-1], at[-1], line.name, colour))
    _scales(axes, sorted({at for line in lines for at in line.points}))
    axes.set_ylabel(title)
    return ends


def gains(axes: Axes, ladder: "Ladder", head_dim: int, *, labelled: bool) -> list[Named]:
    """How many times as fast as token by token every form is, for one head dimension. The ends as of `against_length`."""
    ends = []
    for form, colour in zip(ladder.forms, _FORMS, strict=False):
        if found := ladder.gains(form, head_dim):
            axes.plot(list(found), list(found.values()), color=colour, marker="o", markersize=3.2)
            length, gain = list(found.items())[-1]
            ends.append(Named(gain, length, ladder.words[form], colour))
    _scales(axes, sorted({at for form in ladder.forms for dim in ladder.head_dims for at in ladder.gains(form, dim)}))
    axes.set_ylabel("times as fast as token by token" if labelled else "")
    axes.set_title(f"head dimension {head_dim}", fontsize="medium", loc="left")
    return ends


_FORMS = ("#555555", "#0072B2", "#009E73", "#D55E00", "#CC79A7")
"""Token by token, scan, chunkwise, Triton, and another."""


def against_recall(axes: Axes, tradeoff: "Tradeoff", question: str) -> None:
    """Accuracy against tokens per second, a dot and a name for each model; hollow where its accuracy takes part in no verdict. In grey those without both."""
    points = [point for point in tradeoff.points if question in point.rates]
    lowest = min([tradeoff.chance, *(accuracy for point in tradeoff.points for accuracy in point.accuracies)])  # of all panels alike
    styled = styles_of([point.mixer for point in points])
    ends = []
    for point, (colour, _, mark) in zip(points, styled, strict=True):
        rate = point.rates[question]
        face = "white" if point.doubtful else colour
        if point.accuracies and len(point.accuracies) > 1:
            axes.plot([rate.median] * 2, [min(point.accuracies), max(point.accuracies)], color=colour, linewidth=0.8)
        axes.plot([rate.low, rate.high], [point.mean] * 2, color=colour, linewidth=0.8)
        axes.plot([rate.median], [point.mean], marker=mark, markersize=4.5, color=colour, markerfacecolor=face)
        ends.append(Named(point.mean, rate.median, point.label, colour))
    axes.set(xscale="log", xlabel=f"tokens per second,\n{tradeoff.loads[question]}", ylabel="test accuracy")
    axes.set_ylim(lowest - BELOW * (1 - lowest), 1 + ABOVE * (1 - lowest))
    rate_ticks(axes)
    chance(axes, tradeoff.chance)
    beside(axes, ends, tradeoff.missing[question])


def rate_ticks(axes: Axes) -> None:
    """Of a logarithmic axis across, whose limits are set."""
    slowest, fastest = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if fastest > DECADE * slowest else (1, 1.5, 2, 3, 4, 5, 7)))
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
