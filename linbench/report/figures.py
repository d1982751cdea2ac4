"""Comparisons as figures: what is drawn is stored, and nothing else."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from linbench.cell import digest
from linbench.report.tables import caption
from linbench.results import Comparison, Row
from linbench.store import FINAL, storage_sentence

# Okabe and Ito's colours, told apart by colour-blind readers; the dash tells them apart in grey
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
DISTANCE_BINS = 8


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


def accuracy_by_distance(axes: Axes, comparison: Comparison) -> bool:
    """Test accuracy against the distance that an answer must be carried: the mean over seeds, bars from the worst to the best."""
    ends = []
    edges = _edges([result["slices"]["distance"] for result in comparison.results if "distance" in result["slices"]])
    for row, colour, dash in _styled(comparison.rows):
        binned = [_binned(result["slices"]["distance"], edges) for result in row.results if "distance" in result["slices"]]
        if not binned:
            continue
        diverged = [result for result in row.results if result["status"] == "diverged"]
        binned += [[(at, result["chance"]) for at, _ in binned[0]] for result in diverged]
        at = [fmean(seed[i][0] for seed in binned) for i in range(len(edges))]
        by_bin = [[seed[i][1] for seed in binned] for i in range(len(edges))]
        mean = [fmean(values) for values in by_bin]
        below, above = ([abs(m - pick(v)) for m, v in zip(mean, by_bin, strict=True)] for pick in (min, max))
        axes.errorbar(at, mean, yerr=[below, above], color=colour, linestyle=dash, marker="o", markersize=3.2, capsize=2, elinewidth=0.8)
        ends.append((mean[-1], at[-1], row.label, colour))
    _label_ends(axes, ends)
    _chance(axes, comparison)
    axes.set(xlabel="tokens between what is asked and its answer", ylabel="test accuracy", ylim=(-0.02, 1.04))
    axes.set_xlim(left=0)
    return bool(ends)


def _edges(slices: Sequence[dict[str, Any]]) -> list[int]:
    """The last distance of each of at most `DISTANCE_BINS` bins with about as many answers in every one."""
    counts: Counter[int] = Counter()
    for one in slices:
        counts.update(dict(zip(one["at"], one["accuracy"]["weight"], strict=True)))
    seen, edges = 0, list[int]()
    for at in sorted(counts):
        seen += counts[at]
        if seen * DISTANCE_BINS >= (len(edges) + 1) * counts.total():
            edges.append(at)
    return edges


def _binned(one: dict[str, Any], edges: Sequence[int]) -> list[tuple[float, float]]:
    """(mean distance, accuracy) in every bin."""
    where = [bisect_left(edges, at) for at in one["at"]]
    found = []
    for i in range(len(edges)):
        inside = [(a, r, c) for a, r, c, w in zip(one["at"], *(one["accuracy"][name] for name in ("sum", "weight")), where, strict=True) if w == i]
        counted = sum(c for *_, c in inside)
        found.append((sum(a * c for a, _, c in inside) / counted, sum(r for _, r, _ in inside) / counted) if counted else (math.nan, math.nan))
    return found


FIGURES: dict[str, Callable[[Axes, Comparison], bool]] = {"learning-curves": learning_curves, "distance": accuracy_by_distance}


def save_figures(comparisons: Sequence[Comparison], folder: Path, names: Sequence[str] = tuple(FIGURES)) -> list[Path]:
    """PNG and SVG of every figure of every comparison that has what it shows, and its caption beside it.

    The files carry the hash of the results they were drawn from.
    """
    written = []
    with storage_sentence(folder, "cannot draw to"):
        folder.mkdir(parents=True, exist_ok=True)
        for comparison in comparisons:
            for name in names:
                written += _save(comparison, name, folder / f"{comparison.slug}-{name}")
    return written


def _save(comparison: Comparison, name: str, stem: Path) -> list[Path]:
    """One figure with its caption; nothing where there is nothing to draw."""
    drawn_from = digest(sorted(result["id"] for result in comparison.results))
    pictures = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    with _style():
        figure = Figure()
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        if not FIGURES[name](axes, comparison):
            return []
        axes.set_title(f"{comparison.title}, {comparison.form} form, {_seeds(comparison)}")
        for picture, without in zip(pictures, (("Software",), ("Date", "Creator")), strict=True):
            figure.savefig(picture, metadata={"Description": drawn_from, **dict.fromkeys(without)})
    text = f"{' '.join((FIGURES[name].__doc__ or '').split())} {caption(comparison)}\nDrawn from results {drawn_from}.\n"
    stem.with_suffix(".txt").write_text(text, encoding="utf-8")
    return [*pictures, stem.with_suffix(".txt")]


def _seeds(comparison: Comparison) -> str:
    count = max(len(row.results) for row in comparison.rows)
    return "1 seed" if count == 1 else f"{count} seeds"


@contextmanager
def _style() -> Iterator[None]:
    with as_file(files("linbench.report") / "linbench.mplstyle") as path, mpl.rc_context(fname=path):
        yield


def _styled(rows: Sequence[Row]) -> Iterator[tuple[Row, str, object]]:
    for i, row in enumerate(rows):
        yield row, COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]


def _chance(axes: Axes, comparison: Comparison) -> None:
    chance = comparison.results[0]["chance"]
    axes.axhline(chance, color="#999999", linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    axes.annotate("chance", (1, chance), (-2, 2), xycoords=("axes fraction", "data"), textcoords="offset points", color="#777777", fontsize=7.5, ha="right")


def _label_ends(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Each name beside the end of its line, moved up where lines end too close together to read."""
    gap, height = 0.062, -1.0
    for value, at, label, colour in sorted(ends):
        height = max(value, height + gap)
        axes.text(at, height, f"  {label}", color=colour, va="center", fontsize=8.5, clip_on=False)
