"""Lines of a comparison: a metric of every model against something, with its spread over seeds."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from linbench.report.style.colors import Style, styles
from linbench.report.style.labels import Named, chance_line, label_lines, unmeasured
from linbench.report.style.wording import metric_words, slice_words
from linbench.results.comparison import Comparison, Row
from linbench.results.schema.cells import CellResult
from linbench.results.slices import slices

MOST_VALUES = 12
"""The most values of a slice that are drawn each; of more values, bins are drawn."""

BINS = 8
"""The number of bins of such a slice."""

FEW_SEEDS = 5
"""The most seeds that are drawn each; of more a band alone is drawn."""

FEW_MODELS = 4
"""The most models in a panel whose seeds are drawn as bands, too; bands of more would cover each other."""

Point = tuple[float, float]


def styled(rows: Sequence[Row]) -> Iterator[tuple[Row, Style]]:
    """Return rows with the styles that they are drawn in."""
    return zip(rows, styles([row.results[0] for row in rows]), strict=True)


def marker_face(row: Row, colour: str) -> str:
    """Return the colour inside a mark: white where the row takes part in no verdict."""
    return colour if row.eligible else "white"


def draw_seeds(
    axes: Axes, at: Sequence[float], seeds: Sequence[Sequence[float]], colour: str, *, models: int
) -> list[float]:
    """Draw the spread over seeds, and return the mean at every point.

    Few seeds are drawn each as a thin line. A band from the worst to the best seed is drawn where models are
    few, or seeds many.

    Args:
        axes: to draw on.
        at: the points.
        seeds: the values of every seed at these points.
        colour: of the model.
        models: how many are in the panel.
    """
    by_point = list(zip(*seeds, strict=True))
    if len(seeds) > 1 and (models <= FEW_MODELS or len(seeds) > FEW_SEEDS):
        lowest, highest = [min(values) for values in by_point], [max(values) for values in by_point]
        axes.fill_between(at, lowest, highest, color=colour, alpha=0.1, linewidth=0)
    for values in seeds if 1 < len(seeds) <= FEW_SEEDS else ():
        axes.plot(at, values, color=colour, linewidth=0.6, alpha=0.5)
    return [fmean(values) for values in by_point]


def draw_slice(axes: Axes, comparison: Comparison, name: str, metric: str = "accuracy") -> bool:
    """Draw a metric of the test against a slice; return whether any model has it."""
    found = {result["id"]: slices(result).get(name, {}) for result in comparison.results}
    edges = bin_edges([one for one in found.values() if metric in one], metric)

    def points(result: CellResult) -> list[Point] | None:
        one = found[result["id"]]
        return binned(one, edges, metric) if metric in one else None

    drawn = draw_lines(axes, comparison, points, metric)
    set_slice_axis(axes, comparison.task, name, edges)
    return drawn


def set_slice_axis(axes: Axes, task: str, name: str, edges: Sequence[int]) -> None:
    """Set the label, limits and ticks of the axis of a slice; edges: the last value of each of its bins."""
    axes.set_xlabel(slice_words(task, name))
    axes.set_xlim(left=0 if min(edges, default=0) > 0 else None)
    if len(edges) <= MOST_VALUES:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def draw_lines(
    axes: Axes, comparison: Comparison, points: Callable[[CellResult], list[Point] | None], metric: str
) -> bool:
    """Draw a line for every model; return whether there is any.

    Args:
        axes: to draw on.
        comparison: the models.
        points: returns the points of a result, or None where it has none. The accuracy of a run that diverged
            is then drawn at chance.
        metric: its name.
    """
    ends, missing = list[Named](), []
    for row, style in styled(comparison.rows):
        found = [own for result in row.results if (own := points(result))]
        if not found:
            missing.append(unmeasured(row))
            continue
        if metric == "accuracy":
            for result in row.results:
                if result["status"] == "diverged" and not points(result):
                    found.append([(at, result["chance"]) for at, _ in found[0]])
        at = [fmean(x for x, _ in same) for same in zip(*found, strict=True)]
        values = [[y for _, y in own] for own in found]
        mean = draw_seeds(axes, at, values, style.colour, models=len(comparison.rows))
        face = marker_face(row, style.colour)
        ends += draw_line(axes, list(zip(at, mean, strict=True)), row.label, style, face)
    set_metric_axis(axes, metric, comparison.results[0]["chance"])
    if ends:
        label_lines(axes, ends, missing)
    return bool(ends)


def draw_line(axes: Axes, points: Sequence[Point], name: str, style: Style, face: str) -> list[Named]:
    """Draw the line of a model, and return its last point with its name; nothing if all points are NaN.

    Args:
        axes: to draw on.
        points: where both numbers are NaN, the line has a gap.
        name: of the model.
        style: of the line.
        face: the colour inside its marks.
    """
    at, values = [x for x, _ in points], [y for _, y in points]
    colour, dash, mark = style
    axes.plot(at, values, color=colour, linestyle=dash, marker=mark, markersize=3.2, markerfacecolor=face)
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    return [Named(finite[-1][1], finite[-1][0], name, colour)] if finite else []


def set_metric_axis(axes: Axes, metric: str, chance: float) -> None:
    """Set the label and limits of the axis of a metric, and draw the chance level of an accuracy."""
    axes.set(ylabel=metric_words(metric), ylim=(-0.02, 1.04))
    if metric == "accuracy":
        chance_line(axes, chance)


def bin_edges(found: Sequence[dict[str, Any]], metric: str = "accuracy") -> list[int]:
    """Return the last value of each bin of a slice.

    Each value is a bin of its own where there are few; else there are `BINS` bins with about as many answers.
    """
    counts: Counter[int] = Counter()
    for one in found:
        for at, weight in zip(one["at"], one[metric]["weight"], strict=True):
            if weight > 0:
                counts[at] += weight
    if len(counts) <= MOST_VALUES:
        return sorted(counts)
    seen, edges = 0.0, list[int]()
    for at in sorted(counts):
        seen += counts[at]
        if seen * BINS >= (len(edges) + 1) * counts.total():
            edges.append(at)
    return edges


def binned(one: dict[str, Any], edges: Sequence[int], metric: str = "accuracy") -> list[Point]:
    """Return the mean value of a slice and the mean of a metric in every bin; NaN for an empty bin."""
    places = [bisect_left(edges, at) for at in one["at"]]
    points = []
    for bin_ in range(len(edges)):
        parts = zip(one["at"], one[metric]["sum"], one[metric]["weight"], places, strict=True)
        inside = [(at, total, weight) for at, total, weight, place in parts if place == bin_]
        weights = sum(weight for *_, weight in inside)
        if weights:
            mean_at = sum(at * weight for at, _, weight in inside) / weights
            points.append((mean_at, sum(total for _, total, _ in inside) / weights))
        else:
            points.append((math.nan, math.nan))
    return points
