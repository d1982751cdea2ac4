"""Accuracy of models against their size: marks, bars over seeds, and a line through the sizes of a model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from matplotlib.axes import Axes

from linbench.report.style.colors import Style, styles
from linbench.report.style.labels import Named, chance_line, label_lines, unmeasured
from linbench.report.style.lines import marker_face
from linbench.results.comparison import Comparison, Row

ALIKE = 1.06
"""The largest ratio of two sizes that count as the same; a figure of such sizes alone would say nothing."""

ASIDE = 0.025
"""The distance between marks of one width, as a share of the axis."""

MARGIN = 0.18
"""The margin on either side, as a share of what lies between the sizes."""

BAR = 0.6
"""The opacity of a bar: several of one size can be seen through each other."""

OTHERS = "#CFCFCF"
"""The colour of the models of other panels."""

Size = Literal["state_floats", "width"]
"""A size of a model, as a property of `Row`."""


class Sized(NamedTuple):
    """A model of one size, with its mean accuracy."""

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
        """The rows that have a mean accuracy."""
        return [row for row in self.rows if row.mean is not None]


def by_name(comparison: Comparison) -> dict[str, Model]:
    """Return the models of a comparison by name, with one style for all sizes of one."""
    rows: dict[str, list[Row]] = {}
    for row in comparison.rows:
        rows.setdefault(row.results[0]["label"], []).append(row)
    found = styles([own[0].results[0] for own in rows.values()])
    return {name: Model(style, own) for (name, own), style in zip(rows.items(), found, strict=True)}


def sized(rows: Sequence[Row], size: Size) -> list[Sized]:
    """Return the rows that have a mean accuracy and a size."""
    found = []
    for row in rows:
        at = getattr(row, size)
        if row.mean is not None and at:
            found.append(Sized(at, row.mean, row))
    return found


def distinct_sizes(rows: Sequence[Row], size: Size) -> list[float]:
    """Return the rising sizes of rows, the first of each run of sizes that are about the same."""
    found: list[float] = []
    for at in sorted(one.at for one in sized(rows, size)):
        if not found or at > found[-1] * ALIKE:
            found.append(at)
    return found


def draw_sizes(axes: Axes, comparison: Comparison, whole: Comparison, size: Size) -> bool:
    """Draw accuracy against size; return False where all models are of about one size.

    Args:
        axes: to draw on.
        comparison: the models of the panel: marks, bars from the worst to the best seed, and a line through
            the sizes of each model. A name says where its model was not measured at every width.
        whole: the models of all panels; those of others are drawn in grey.
        size: which size.
    """
    every = sized(whole.rows, size)
    sizes = distinct_sizes(whole.rows, size)
    if len(sizes) < 2:
        return False
    own = {id(row) for row in comparison.rows}
    others = [one for one in every if id(one.row) not in own]
    at, means = [one.at for one in others], [one.mean for one in others]
    axes.plot(at, means, linestyle="", marker="o", markersize=2.5, color=OTHERS, zorder=1)
    models = by_name(comparison)
    span = math.log(sizes[-1] / sizes[0])
    ends = _draw_models(axes, models, size, span)
    axes.set_xscale("log")
    axes.minorticks_off()
    margin = math.exp(MARGIN * span)
    axes.set_xlim(sizes[0] / margin, max(one.at for one in every) * margin)
    axes.set(ylabel="test accuracy", ylim=(-0.02, 1.04))
    chance_line(axes, comparison.results[0]["chance"])
    names = [end._replace(name=name + _widths(models[name], size, whole)) for name, end in ends.items()]
    label_lines(axes, names, [unmeasured(row) for row in comparison.rows if row.mean is None])
    return True


def _draw_models(axes: Axes, models: Mapping[str, Model], size: Size, span: float) -> dict[str, Named]:
    """Draw all sizes of some models, and return the largest of each. span: of all sizes, as a logarithm."""
    points = [(name, one) for name, model in models.items() for one in sized(model.rows, size)]
    at = [one.at for _, one in points]
    if size == "width":
        at = _moved_apart([one for _, one in points], span)
    ends: dict[str, Named] = {}
    for (name, one), x in sorted(zip(points, at, strict=True), key=lambda pair: pair[0][1].at):
        (colour, dash, mark), row = models[name].style, one.row
        bars = None
        if len(row.accuracies) > 1:
            bars = [[one.mean - min(row.accuracies)], [max(row.accuracies) - one.mean]]
        axes.errorbar(
            [x], [one.mean], yerr=bars, fmt="none", ecolor=colour, elinewidth=0.8, capsize=2, alpha=BAR
        )
        face = marker_face(row, colour)
        axes.plot([x], [one.mean], color=colour, marker=mark, markersize=4, markerfacecolor=face, zorder=3)
        if name in ends:
            last = ends[name]
            axes.plot(
                [last.at, x], [last.value, one.mean], color=colour, linestyle=dash, linewidth=0.8, zorder=1.5
            )
        ends[name] = Named(one.mean, x, name, colour)
    return ends


def _widths(model: Model, size: Size, whole: Comparison) -> str:
    """Return the widths at which a model was measured, where others were measured at more."""
    widths, own = {row.width for row in whole.rows}, sorted({row.width for row in model.measured})
    if size != "width" or set(own) == widths:
        return ""
    return f" (at {', '.join(map(str, own))} only)"


def _moved_apart(points: Sequence[Sized], span: float) -> list[float]:
    """Return where marks are drawn: those of one size side by side, the lowest accuracy to the left."""
    found = [one.at for one in points]
    for size in {one.at for one in points}:
        group = [place for place, one in enumerate(points) if one.at == size]
        group.sort(key=lambda place: points[place].mean)
        for rank, place in enumerate(group):
            found[place] *= math.exp(ASIDE * span * (rank - (len(group) - 1) / 2))
    return found
