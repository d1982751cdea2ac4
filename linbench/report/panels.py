"""Comparisons drawn on axes: learning curves, and a metric against a slice of the test or the length tested. Each says whether there was anything."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from linbench.report.colours import Dash, styles
from linbench.results import Comparison, Row, slices
from linbench.scores import accuracies_by_test
from linbench.store import FINAL, NO_VERDICT, Result

BINS, APART = 8, 12
"""A slice of more than `APART` values is drawn in so many bins."""

WORDS = {
    "distance": "tokens between what is asked and its answer",
    "doublings": "doublings of the distance, in tokens",
    "overwrites": "how often the value had been overwritten",
    "accuracy": "test accuracy",
    "stale": "answers that are an older value",
}
"""Of slices and metrics, where the name does not say it."""

CROWD = 8
"""More lines than these cannot be told apart in one panel."""

Point = tuple[float, float]


def learning_curves(axes: Axes, comparison: Comparison) -> bool:
    """Validation accuracy against tokens seen: the mean over seeds, and each of them thin.

    A run that diverged counts as chance from there on. A hollow end: undertrained.
    """
    ends = []
    for row, colour, dash in _styled(comparison.rows):
        counted = [result for result in row.results if result["status"] in FINAL]
        longest: list[dict[str, float]] = max((result["curve"] for result in counted), key=len, default=[])
        if not longest:
            continue
        curves = [[point["accuracy"] for point in result["curve"]] for result in counted]
        padded = [curve + [result["chance"]] * (len(longest) - len(curve)) for curve, result in zip(curves, counted, strict=True)]
        tokens = [point["tokens"] for point in longest]
        by_point = list(zip(*padded, strict=True))
        mean = [fmean(values) for values in by_point]
        _thin(axes, tokens, padded, colour)
        axes.plot(tokens, mean, color=colour, linestyle=dash)
        axes.plot(tokens[-1:], mean[-1:], marker="o", markersize=4.5, color=colour, markerfacecolor=_face(row, colour))
        ends.append((mean[-1], tokens[-1], row.label, colour))
    _label_ends(axes, ends)
    _chance(axes, comparison)
    axes.set(xlabel="tokens seen in training", ylabel="validation accuracy", ylim=(-0.02, 1.04))
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:g} M" if value else "0"))
    return bool(ends)


def by_slice(axes: Axes, comparison: Comparison, slice_: str, metric: str = "accuracy", *, named: bool = True) -> bool:
    """A metric of the test against a slice: the mean over seeds, and each of them thin."""
    found = {result["id"]: slices(result).get(slice_, {}) for result in comparison.results}
    edges = _edges([one for one in found.values() if metric in one], metric)

    def of(result: Result) -> list[Point] | None:
        one = found[result["id"]]
        return _binned(one, edges, metric) if metric in one else None

    drawn = _against(axes, comparison, of, metric, named=named)
    axes.set_xlabel(WORDS.get(slice_, slice_.replace("_", " ")))
    axes.set_xlim(left=0 if min(edges, default=0) > 0 else None)
    if len(edges) <= APART:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return drawn


def by_length(axes: Axes, comparison: Comparison) -> bool:
    """Accuracy of each of several tests against its length: the mean over seeds, and each of them thin."""
    lengths = [[test["seq_len"] for test in result.get("tests", [])] for result in comparison.results]
    if any(len(set(each)) < 2 for each in lengths):
        return False

    def of(result: Result) -> list[Point] | None:
        values = accuracies_by_test(result)
        return None if values is None else sorted(zip((test["seq_len"] for test in result["tests"]), values, strict=True))

    drawn = _against(axes, comparison, of, "accuracy")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(lengths[0])), [str(length) for length in sorted(set(lengths[0]))])
    axes.minorticks_off()
    axes.set_xlabel("tokens of a tested sequence")
    return drawn


def by_state(axes: Axes, comparison: Comparison) -> bool:
    """Accuracy against the floats that a sequence carries: the mean over seeds, bars from the worst to the best; a line through the sizes of one model. A
    hollow mark: undertrained."""
    found, all_sizes = [], set[int]()
    for name, (colour, rows) in _models(comparison).items():
        points = sorted(((_state(row), row.mean, row) for row in rows if row.mean is not None and _state(row)), key=lambda point: point[:2])
        if not points:
            continue
        sizes = [at for at, *_ in points]
        if len(set(sizes)) == len(sizes) > 1:
            axes.plot(sizes, [mean for _, mean, _ in points], color=colour, linewidth=0.8)
        for at, mean, row in points:
            bars = [[mean - min(row.accuracies)], [max(row.accuracies) - mean]] if len(row.accuracies) > 1 else None
            axes.errorbar([at], [mean], yerr=bars, color=colour, marker="o", markersize=4.5, markerfacecolor=_face(row, colour), capsize=2, elinewidth=0.8)
        found.append((points[-1][1], float(points[-1][0]), name, colour))
        all_sizes.update(sizes)
    if len(all_sizes) < 2:
        return False
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.minorticks_off()
    axes.set(xlabel="floats carried from token to token, all layers", ylabel="test accuracy", ylim=(-0.02, 1.04))
    _chance(axes, comparison)
    _label_aside(axes, found)
    return True


def by_model(axes: Axes, comparison: Comparison) -> bool:
    """Accuracy of every model, the best above: a small dot for each seed, a large one for their mean, hollow where it takes part in no verdict. A model of
    several sizes has a dot for each, the larger the more it carries."""
    models = _models(comparison)
    means = {name: [row.mean for row in rows if row.mean is not None] for name, (_, rows) in models.items()}
    order = sorted((name for name in means if means[name]), key=lambda name: fmean(means[name]))
    for height, name in enumerate(order):
        colour, rows = models[name]
        for place, row in enumerate(sorted(rows, key=_state)):
            if row.mean is None:
                continue
            size = 4.5 + 2 * place
            axes.plot(row.accuracies, [height] * len(row.accuracies), linestyle="", marker="o", markersize=size / 2, color=colour, alpha=0.5)
            axes.plot([row.mean], [height], marker="o", markersize=size, color=colour, markerfacecolor=_face(row, colour), alpha=0.9)
    axes.set_yticks(range(len(order)), order, fontsize=7.5)
    for name, tick in zip(order, axes.get_yticklabels(), strict=True):
        tick.set_color(models[name][0])
    axes.axvline(comparison.results[0]["chance"], color="#999999", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    axes.set(xlabel="test accuracy; dashed: chance", xlim=(-0.02, 1.04), ylim=(-0.7, len(order) - 0.3))
    return len(order) > 1


def _models(comparison: Comparison) -> dict[str, tuple[str, list[Row]]]:
    """The colour of each model and its rows, one for each size."""
    found: dict[str, tuple[str, list[Row]]] = {}
    for row, colour, _ in _styled(comparison.rows):
        found.setdefault(row.results[0]["label"], (colour, []))[1].append(row)
    return found


def _state(row: Row) -> int:
    """Floats that it carries; 0: it does not say."""
    size: dict[str, Any] = next((result["model"] for result in row.results if result["model"]), {})
    return int(size["state"]["total"]) if size.get("state") else 0


def _face(row: Row, colour: str) -> str:
    """White where a row takes part in no verdict."""
    return "white" if any(mark in NO_VERDICT for result in row.results for mark in result["marks"]) else colour


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """Sorted heights, moved so that they are `gap` apart, and that none is above the axes: what would be moves all below it down."""
    gap = min(gap, 1.04 / max(1, len(values) - 1))
    heights = sorted(values)
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    return [min(height, 1.03 - gap * above) for above, height in zip(reversed(range(len(heights))), heights, strict=True)]


def _label_aside(axes: Axes, found: list[tuple[float, float, str, str]]) -> None:
    """Names in a column beside the axes, in the order of height, each with a line to its point."""
    for height, (value, at, label, colour) in zip(_apart([value for value, *_ in found], 0.062), sorted(found), strict=True):
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.4, "alpha": 0.6, "shrinkB": 3, "relpos": (0, 0.5)}
        axes.annotate(
            label, (at, value), (1.03, height), textcoords=axes.get_yaxis_transform(), color=colour, va="center", fontsize=7.5, arrowprops=line,
            annotation_clip=False,
        )  # fmt: skip


def _against(axes: Axes, comparison: Comparison, of: Callable[[Result], list[Point] | None], metric: str, *, named: bool = True) -> bool:
    """A line for every row through what its results have there. Where accuracy was not measured because a run diverged it is chance."""
    ends = []
    for row, colour, dash in _styled(comparison.rows):
        found = [points for result in row.results if (points := of(result))]
        if not found:
            continue
        if metric == "accuracy":
            diverged = [result for result in row.results if result["status"] == "diverged" and not of(result)]
            found += [[(at, result["chance"]) for at, _ in found[0]] for result in diverged]
        at = [fmean(x for x, _ in points) for points in zip(*found, strict=True)]
        by_point = [[y for _, y in points] for points in zip(*found, strict=True)]
        mean = [fmean(values) for values in by_point]
        _thin(axes, at, [[y for _, y in points] for points in found], colour)
        axes.plot(at, mean, color=colour, linestyle=dash, marker="o", markersize=3.2)
        ends.append((mean[-1], at[-1], row.label, colour))
    if named:
        _label_ends(axes, ends)
    if metric == "accuracy":
        _chance(axes, comparison)
    axes.set(ylabel=WORDS.get(metric, metric.replace("_", " ")), ylim=(-0.02, 1.04))
    return bool(ends)


def _thin(axes: Axes, at: Sequence[float], seeds: Sequence[Sequence[float]], colour: str) -> None:
    """A line for each seed, where there are several."""
    for values in seeds if len(seeds) > 1 else ():
        axes.plot(at, values, color=colour, linewidth=0.6, alpha=0.5)


def _edges(found: Sequence[dict[str, Any]], metric: str = "accuracy") -> list[int]:
    """The last value of each bin: of every value where there are few, else of `BINS` with about as many answers in every one."""
    counts: Counter[int] = Counter()
    for one in found:
        counts.update({at: weight for at, weight in zip(one["at"], one[metric]["weight"], strict=True) if weight > 0})
    if len(counts) <= APART:
        return sorted(counts)
    seen, edges = 0.0, list[int]()
    for at in sorted(counts):
        seen += counts[at]
        if seen * BINS >= (len(edges) + 1) * counts.total():
            edges.append(at)
    return edges


def _binned(one: dict[str, Any], edges: Sequence[int], metric: str = "accuracy") -> list[Point]:
    """(mean value of the slice, metric) in every bin."""
    where = [bisect_left(edges, at) for at in one["at"]]
    found = []
    for i in range(len(edges)):
        parts = zip(one["at"], one[metric]["sum"], one[metric]["weight"], where, strict=True)
        inside = [(at, sum_, weight) for at, sum_, weight, bin_ in parts if bin_ == i]
        weighed = sum(weight for *_, weight in inside)
        mean = (sum(at * weight for at, _, weight in inside) / weighed, sum(sum_ for _, sum_, _ in inside) / weighed) if weighed else (math.nan, math.nan)
        found.append(mean)
    return found


def _styled(rows: Sequence[Row]) -> Iterator[tuple[Row, str, Dash]]:
    for row, (colour, dash) in zip(rows, styles([row.results[0] for row in rows]), strict=True):
        yield row, colour, dash


def _chance(axes: Axes, comparison: Comparison) -> None:
    chance = comparison.results[0]["chance"]
    axes.axhline(chance, color="#999999", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    axes.annotate("chance", (0, chance), (2, 2), xycoords=("axes fraction", "data"), textcoords="offset points", color="#777777", fontsize=7.5, ha="left")


def _label_ends(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Each name beside the end of its line, moved where lines end too close together to read."""
    for height, (_, at, label, colour) in zip(_apart([value for value, *_ in ends], 0.062), sorted(ends), strict=True):
        axes.text(at, height, f"  {label}", color=colour, va="center", fontsize=8.5 if len(ends) <= CROWD else 7.5, clip_on=False)
