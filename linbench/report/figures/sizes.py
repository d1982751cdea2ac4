"""Accuracy of every model, and against what it carries and how wide it is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator

from linbench.report.figures.curves import face
from linbench.report.style.colors import Style, ink, styles
from linbench.report.style.labels import (
    CHANCE,
    CHANCE_LINE,
    GUIDE,
    MISSING,
    Named,
    beside,
    chance,
    unmeasured,
    whole_figure,
)
from linbench.results.comparison import Comparison, Row

ALIKE = 1.06
"""Sizes of a smaller ratio are about the same: a figure of them alone would say nothing."""

ASIDE = 0.025
"""How far marks of one width, of which there are but a few, are moved apart: a share of the axis."""

MARGIN = 0.18
"""On either side: of what lies between the sizes."""

BAR = 0.6
"""The opacity of a bar: several of one size can be seen through each other."""

WORDS = 0.07
"""The height of a line of words, with what is free around it: a share of accuracies from 0 to 1."""

BETWEEN = 0.36
"""From the first to the last size of one model in its row."""

Size = Literal["state_floats", "width"]
"""A property of rows."""


class Sized(NamedTuple):
    """One model of one size, whatever that is: its mean accuracy there."""

    at: float
    mean: float
    row: Row


@dataclass(frozen=True)
class Model:
    """All sizes of one model."""

    style: Style
    rows: list[Row]

    @property
    def measured(self) -> list[Row]:
        """Those with a number."""
        return [row for row in self.rows if row.mean is not None]


def by_state(axes: Axes, comparison: Comparison, whole: Comparison) -> bool:
    """Accuracy against the floats that a sequence carries, with the Pareto front of `whole`."""
    if not _by_size(axes, comparison, whole, "state_floats"):
        return False
    _front(axes, _sized(whole.rows, "state_floats"), comparison.results[0]["chance"])
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}")
    )
    axes.set_xlabel("floats carried from token to token, all layers")
    return True


def by_width(axes: Axes, comparison: Comparison, whole: Comparison) -> bool:
    """Accuracy against the width of a model."""
    if not _by_size(axes, comparison, whole, "width"):
        return False
    widths = sorted({one.at for one in _sized(whole.rows, "width")})
    axes.set_xticks(widths, [f"{width:g}" for width in widths])
    axes.set_xlabel("width of the model")
    return True


def _by_size(axes: Axes, comparison: Comparison, whole: Comparison, of: Size) -> bool:
    """The models of `comparison`, and in grey those of `whole` that are not among them: marks, bars from the
    worst to the best seed, and a line through the sizes of one model. A name says where it has not every size
    that some model has. False where all of `whole` is of one size."""
    every = _sized(whole.rows, of)
    sizes = _told_apart([one.at for one in every])
    if len(sizes) < 2:
        return False
    own = {id(row) for row in comparison.rows}
    others = [one for one in every if id(one.row) not in own]
    axes.plot(
        [one.at for one in others],
        [one.mean for one in others],
        linestyle="",
        marker="o",
        markersize=2.5,
        color="#CFCFCF",
        zorder=1,
    )
    models = _models(comparison)
    points = [(name, one) for name, model in models.items() for one in _sized(model.rows, of)]
    span = math.log(sizes[-1] / sizes[0])
    at = _aside([one for _, one in points], span) if of == "width" else [one.at for _, one in points]
    ends: dict[str, Named] = {}
    for (name, one), x in sorted(zip(points, at, strict=True), key=lambda pair: pair[0][1].at):
        (colour, dash, mark), row = models[name].style, one.row
        bars = (
            [[one.mean - min(row.accuracies)], [max(row.accuracies) - one.mean]]
            if len(row.accuracies) > 1
            else None
        )
        axes.errorbar(
            [x], [one.mean], yerr=bars, fmt="none", ecolor=colour, elinewidth=0.8, capsize=2, alpha=BAR
        )
        axes.plot(
            [x],
            [one.mean],
            color=colour,
            marker=mark,
            markersize=4,
            markerfacecolor=face(row, colour),
            zorder=3,
        )
        if name in ends:
            axes.plot(
                [ends[name].at, x],
                [ends[name].value, one.mean],
                color=colour,
                linestyle=dash,
                linewidth=0.8,
                zorder=1.5,
            )
        ends[name] = Named(one.mean, x, name, colour)
    axes.set_xscale("log")
    axes.minorticks_off()
    margin = math.exp(MARGIN * span)
    axes.set_xlim(sizes[0] / margin, max(one.at for one in every) * margin)
    axes.set(ylabel="test accuracy", ylim=(-0.02, 1.04))
    chance(axes, comparison.results[0]["chance"])
    found = [end._replace(name=name + _lacking(models[name], of, whole)) for name, end in ends.items()]
    beside(axes, found, [unmeasured(row) for row in comparison.rows if row.mean is None])
    return True


def _lacking(model: Model, of: Size, whole: Comparison) -> str:
    """Where a model of one width was measured among others of several."""
    widths, own = {row.width for row in whole.rows}, sorted({row.width for row in model.measured})
    return "" if of != "width" or set(own) == widths else f" (at {', '.join(map(str, own))} only)"


def _told_apart(sizes: Sequence[float]) -> list[float]:
    """The first of each run of sizes that are about the same."""
    found: list[float] = []
    for size in sorted(sizes):
        if not found or size > found[-1] * ALIKE:
            found.append(size)
    return found


def _aside(points: Sequence[Sized], span: float) -> list[float]:
    """Where each is drawn: those of one size side by side, the lowest to the left. `span`: of the axis, as a
    logarithm."""
    found = [one.at for one in points]
    for size in {one.at for one in points}:
        group = [j for j, one in enumerate(points) if one.at == size]
        for place, j in enumerate(sorted(group, key=lambda j: points[j].mean)):
            found[j] *= math.exp(ASIDE * span * (place - (len(group) - 1) / 2))
    return found


def _front(axes: Axes, every: Sequence[Sized], guessing: float) -> None:
    """The best that so much is known to do, of rows that take part in verdicts; its name where the line of
    chance, at `guessing`, does not go through it."""
    best = list[Sized]()
    for one in sorted(every, key=lambda one: (one.at, -one.mean)):
        if one.row.in_verdicts and (not best or one.mean > best[-1].mean):
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
    below = WORDS < level < guessing < level + WORDS
    axes.annotate(
        "Pareto front", ((left * right) ** 0.5, level), (0, -3 if below else 3), textcoords="offset points", color=GUIDE, fontsize=7.5, ha="center",
        va="top" if below else "baseline",
    )  # fmt: skip


def by_model(axes: Axes, comparison: Comparison) -> bool:
    """Accuracy of every model, the best above; below, in grey, those that have none."""
    models = _models(comparison)
    means = {
        name: [row.mean for row in model.measured if row.mean is not None] for name, model in models.items()
    }
    order = sorted(means, key=lambda name: fmean(means[name]) if means[name] else -1.0)
    widths = sorted({row.width for model in models.values() for row in model.measured})
    for height, name in enumerate(order):
        model = models[name]
        for place, row in enumerate(sorted(model.measured, key=lambda row: (row.width, row.state_floats))):
            size, colour, mean = _dot(widths.index(row.width)), model.style.colour, row.mean or 0.0
            at = height + BETWEEN * (place - (len(model.measured) - 1) / 2) / max(1, len(model.measured) - 1)
            axes.plot(
                [min(row.accuracies), max(row.accuracies)], [at] * 2, color=colour, linewidth=0.7, alpha=0.6
            )
            axes.plot(
                row.accuracies,
                [at] * len(row.accuracies),
                linestyle="",
                marker="o",
                markersize=size / 2,
                color=colour,
                alpha=0.5,
            )
            axes.plot(
                [mean],
                [at],
                marker="o",
                markersize=size,
                color=colour,
                markerfacecolor=face(row, colour),
                alpha=0.9,
            )
        absent = [unmeasured(row).removeprefix(f"{name}: ") for row in model.rows if row.mean is None]
        if absent:
            axes.text(
                0.5,
                height,
                "; ".join(absent),
                color=MISSING,
                style="italic",
                fontsize=7.5,
                ha="center",
                va="center",
            )
    axes.set_yticks(range(len(order)), order, fontsize=7.5)
    for name, tick in zip(order, axes.get_yticklabels(), strict=True):
        tick.set_color(ink(models[name].style.colour) if models[name].measured else MISSING)
    axes.axvline(comparison.results[0]["chance"], **CHANCE_LINE)
    axes.set(xlabel=f"test accuracy; {CHANCE}", xlim=(-0.02, 1.04), ylim=(-0.7, len(order) - 0.3))
    if len(widths) > 1:
        dots = [
            Line2D([], [], linestyle="", marker="o", markersize=_dot(i), color=GUIDE, label=f"width {width}")
            for i, width in enumerate(widths)
        ]
        whole_figure(axes).legend(
            handles=dots, loc="outside lower right", ncols=len(dots), fontsize=7.5, handletextpad=0.1
        )
    return sum(map(bool, means.values())) > 1


def _dot(place: int) -> float:
    """The size of the dot of a width, by its place among all."""
    return 4.0 + 2 * place


def _models(comparison: Comparison) -> dict[str, Model]:
    """By their names, with one style for all sizes of one."""
    found: dict[str, list[Row]] = {}
    for row in comparison.rows:
        found.setdefault(row.results[0]["label"], []).append(row)
    return {
        name: Model(style, rows)
        for (name, rows), style in zip(
            found.items(), styles([rows[0].results[0] for rows in found.values()]), strict=True
        )
    }


def _sized(rows: Sequence[Row], of: Size) -> list[Sized]:
    """Those that have a number and a size."""
    return [Sized(at, row.mean, row) for row in rows if row.mean is not None and (at := getattr(row, of))]
