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
from linbench.results import Comparison, Row, accuracies_by_test, slices
from linbench.store import FINAL, Result

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

Point = tuple[float, float]


def learning_curves(axes: Axes, comparison: Comparison) -> bool:
    """Validation accuracy against tokens seen: the mean over seeds, and the band from the worst to the best of them.

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
        if len(curves) > 1:
            axes.fill_between(tokens, [min(v) for v in by_point], [max(v) for v in by_point], color=colour, alpha=0.18, linewidth=0)
        axes.plot(tokens, mean, color=colour, linestyle=dash)
        hollow = any("undertrained" in result["marks"] for result in row.results)
        axes.plot(tokens[-1:], mean[-1:], marker="o", markersize=4.5, color=colour, markerfacecolor="white" if hollow else colour)
        ends.append((mean[-1], tokens[-1], row.label, colour))
    _label_ends(axes, ends)
    _chance(axes, comparison)
    axes.set(xlabel="tokens seen in training", ylabel="validation accuracy", ylim=(-0.02, 1.04))
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:g} M" if value else "0"))
    return bool(ends)


def by_slice(axes: Axes, comparison: Comparison, slice_: str, metric: str = "accuracy", *, named: bool = True) -> bool:
    """A metric of the test against a slice: the mean over seeds, bars from the worst to the best."""
    found = {result["id"]: slices(result).get(slice_, {}) for result in comparison.results}
    edges = _edges([one for one in found.values() if metric in one], metric)

    def of(result: Result) -> list[Point] | None:
        one = found[result["id"]]
        return _binned(one, edges, metric) if metric in one else None

    drawn = _against(axes, comparison, of, metric, named=named)
    axes.set_xlabel(WORDS.get(slice_, slice_.replace("_", " ")))
    axes.set_xlim(left=0 if min(edges, default=0) > 0 else None)
    if len(edges) <= APART:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return drawn


def by_length(axes: Axes, comparison: Comparison) -> bool:
    """Accuracy of each of several tests against its length: the mean over seeds, bars from the worst to the best."""
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
    """Accuracy against the floats that a sequence carries: the mean over seeds, bars from the worst to the best. A hollow mark: undertrained."""
    found = []
    for row, colour, _ in _styled(comparison.rows):
        size: dict[str, Any] = next((result["model"] for result in row.results if result["model"]), {})
        if row.mean is None or not size.get("state"):
            continue
        hollow = any("undertrained" in result["marks"] for result in row.results)
        bars = [[row.mean - min(row.accuracies)], [max(row.accuracies) - row.mean]] if len(row.accuracies) > 1 else None
        at = size["state"]["total"]
        axes.errorbar(
            [at], [row.mean], yerr=bars, color=colour, marker="o", markersize=4.5, markerfacecolor="white" if hollow else colour, capsize=2, elinewidth=0.8
        )
        found.append((row.mean, at, row.label, colour))
    if len({at for _, at, *_ in found}) < 2:
        return False
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.minorticks_off()
    axes.set(xlabel="floats carried from token to token, all layers", ylabel="test accuracy", ylim=(-0.02, 1.04))
    _chance(axes, comparison)
    _label_aside(axes, found)
    return True


def _label_aside(axes: Axes, found: list[tuple[float, float, str, str]]) -> None:
    """Names in a column beside the axes, in the order of height, each with a line to its point."""
    gap = min(0.062, 1.04 / max(1, len(found) - 1))
    heights = [value for value, *_ in sorted(found)]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    for above, i in enumerate(reversed(range(len(heights)))):  # what would stand above the axes moves all below it down
        heights[i] = min(heights[i], 1.03 - gap * above)
    for height, (value, at, label, colour) in zip(heights, sorted(found), strict=True):
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.4, "alpha": 0.6, "shrinkB": 3}
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
        below, above = ([abs(m - pick(v)) for m, v in zip(mean, by_point, strict=True)] for pick in (min, max))
        axes.errorbar(at, mean, yerr=[below, above], color=colour, linestyle=dash, marker="o", markersize=3.2, capsize=2, elinewidth=0.8)
        ends.append((mean[-1], at[-1], row.label, colour))
    if named:
        _label_ends(axes, ends)
    if metric == "accuracy":
        _chance(axes, comparison)
    axes.set(ylabel=WORDS.get(metric, metric.replace("_", " ")), ylim=(-0.02, 1.04))
    return bool(ends)


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
    """Each name beside the end of its line, moved up where lines end too close together to read."""
    gap, height = 0.062, -1.0
    for value, at, label, colour in sorted(ends):
        height = max(value, height + gap)
        axes.text(at, height, f"  {label}", color=colour, va="center", fontsize=8.5, clip_on=False)
