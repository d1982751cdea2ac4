"""Comparisons as lines: learning curves, and a metric against a slice of the test or the length tested. Each
says whether there was anything."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from linbench.report.style.colors import Style, styles
from linbench.report.style.labels import Named, beside, chance, unmeasured
from linbench.results.comparison import Comparison, Row
from linbench.results.record import Result
from linbench.results.scores import accuracies_by_test
from linbench.results.slices import slices

BINS, APART = 8, 12
"""A slice of more than `APART` values is drawn in so many bins."""

FEW_SEEDS, FEW_MODELS = 5, 4
"""So many seeds are drawn each, more as a band alone; the seeds of more models in one panel as lines alone,
as bands would cover each other."""

WORDS = {
    "distance": "tokens between what is asked and its answer",
    "doublings": "doublings of the distance, in tokens",
    "overwrites": "how often the value had been overwritten",
    "slot": "place of the question, 0 nearest to the pairs",
    "writes_between": "writes of other keys in between",
    "parity length": "place in the sequence: bits up to the answer",
    "accuracy": "test accuracy",
    "stale": "answers that are an older value",
}
"""Of slices and metrics, where the name does not say it; with its task before it a slice whose name says
something else there."""

Point = tuple[float, float]


def styled(rows: Sequence[Row]) -> Iterator[tuple[Row, Style]]:
    """Each with how it is drawn."""
    return zip(rows, styles([row.results[0] for row in rows]), strict=True)


def face(row: Row, colour: str) -> str:
    """White where a row takes part in no verdict."""
    return colour if row.in_verdicts else "white"


def over_seeds(
    axes: Axes, at: Sequence[float], seeds: Sequence[Sequence[float]], colour: str, *, models: int
) -> list[float]:
    """The mean at every point. Drawn are a band from the worst to the best seed and each of them thin, or, by
    how many seeds and `models` there are, one of the two."""
    by_point = list(zip(*seeds, strict=True))
    if len(seeds) > 1 and (models <= FEW_MODELS or len(seeds) > FEW_SEEDS):
        axes.fill_between(
            at,
            [min(values) for values in by_point],
            [max(values) for values in by_point],
            color=colour,
            alpha=0.1,
            linewidth=0,
        )
    for values in seeds if 1 < len(seeds) <= FEW_SEEDS else ():
        axes.plot(at, values, color=colour, linewidth=0.6, alpha=0.5)
    return [fmean(values) for values in by_point]


def by_slice(axes: Axes, comparison: Comparison, slice_: str, metric: str = "accuracy") -> bool:
    """A metric of the test against a slice."""
    found = {result["id"]: slices(result).get(slice_, {}) for result in comparison.results}
    edges = _edges([one for one in found.values() if metric in one], metric)

    def of(result: Result) -> list[Point] | None:
        one = found[result["id"]]
        return _binned(one, edges, metric) if metric in one else None

    drawn = _against(axes, comparison, of, metric)
    axes.set_xlabel(slice_words(comparison.task, slice_))
    axes.set_xlim(left=0 if min(edges, default=0) > 0 else None)
    if len(edges) <= APART:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    return drawn


def slice_words(task: str, slice_: str) -> str:
    """What a slice of a task is."""
    return WORDS.get(f"{task} {slice_}") or WORDS.get(slice_, slice_.replace("_", " "))


def by_length(axes: Axes, comparison: Comparison) -> bool:
    """Accuracy of each of several tests against its length."""
    lengths = [[test["seq_len"] for test in result.get("tests", [])] for result in comparison.results]
    if any(len(set(each)) < 2 for each in lengths):
        return False

    def of(result: Result) -> list[Point] | None:
        values = accuracies_by_test(result)
        return (
            None
            if values is None
            else sorted(zip((test["seq_len"] for test in result["tests"]), values, strict=True))
        )

    drawn = _against(axes, comparison, of, "accuracy")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(lengths[0])), [str(length) for length in sorted(set(lengths[0]))])
    axes.minorticks_off()
    axes.set_xlabel("tokens of a tested sequence")
    return drawn


def _against(
    axes: Axes, comparison: Comparison, of: Callable[[Result], list[Point] | None], metric: str
) -> bool:
    """A line for every row through what its results have there. Where accuracy was not measured because a run
    diverged it is chance."""
    ends, missing = [], []
    for row, (colour, dash, mark) in styled(comparison.rows):
        found = [points for result in row.results if (points := of(result))]
        if not found:
            missing.append(unmeasured(row))
            continue
        if metric == "accuracy":
            diverged = [result for result in row.results if result["status"] == "diverged" and not of(result)]
            found += [[(at, result["chance"]) for at, _ in found[0]] for result in diverged]
        at = [fmean(x for x, _ in points) for points in zip(*found, strict=True)]
        mean = over_seeds(
            axes, at, [[y for _, y in points] for points in found], colour, models=len(comparison.rows)
        )
        axes.plot(
            at,
            mean,
            color=colour,
            linestyle=dash,
            marker=mark,
            markersize=3.2,
            markerfacecolor=face(row, colour),
        )
        ends += [Named(y, x, row.label, colour) for x, y in zip(at, mean, strict=True) if math.isfinite(y)][
            -1:
        ]
    axes.set(ylabel=WORDS.get(metric, metric.replace("_", " ")), ylim=(-0.02, 1.04))
    if metric == "accuracy":
        chance(axes, comparison.results[0]["chance"])
    if ends:
        beside(axes, ends, missing)
    return bool(ends)


def _edges(found: Sequence[dict[str, Any]], metric: str = "accuracy") -> list[int]:
    """The last value of each bin: of every value where there are few, else of `BINS` with about as many
    answers in every one."""
    counts: Counter[int] = Counter()
    for one in found:
        counts.update(
            {at: weight for at, weight in zip(one["at"], one[metric]["weight"], strict=True) if weight > 0}
        )
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
        mean = (
            (
                sum(at * weight for at, _, weight in inside) / weighed,
                sum(sum_ for _, sum_, _ in inside) / weighed,
            )
            if weighed
            else (math.nan, math.nan)
        )
        found.append(mean)
    return found
