"""Recall against speed, for every model of a comparison that was timed."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linbench.common.text import counted
from linbench.report.figure import Drawing
from linbench.report.figures.captions import of_diverged, over_answers
from linbench.report.figures.speed_axes import rate_ticks
from linbench.report.style.colors import styles_of
from linbench.report.style.labels import Named, became_of, beside, chance, footnote, titled
from linbench.report.style.layout import PANEL_INCHES
from linbench.report.tables.comparison import setting
from linbench.results.comparison import Comparison, Row, broken, laws_said
from linbench.results.layer_speeds import ASKED, Way, best_way, layer_of
from linbench.results.record import Result, fingerprint
from linbench.results.speeds import Rate, Speeds, speeds


@dataclass(frozen=True)
class Point:
    """A model of a comparison: its accuracies, one for each seed, and tokens per second of its layer by
    question."""

    label: str
    mixer: str
    accuracies: tuple[float, ...]
    rates: dict[str, Rate]
    doubtful: bool

    @property
    def mean(self) -> float:
        """Over seeds."""
        return fmean(self.accuracies)


@dataclass(frozen=True)
class Tradeoff:
    """Models of one comparison whose layers were measured. loads: by question in words at which batch and
    length; missing: what stands in no place there, and why; tests: of how many an accuracy is the mean."""

    title: str
    points: tuple[Point, ...]
    loads: dict[str, str]
    missing: dict[str, list[str]]
    chance: float
    tests: int
    caption: str
    results: tuple[Result, ...]
    slug: str


def tradeoffs(results: Iterable[Result], comparisons: Sequence[Comparison]) -> list[Tradeoff]:
    """For each comparison in the controlled form that has a metric of recall, and of which at least two
    models have layers that were measured: of all that were measured in the same way the way that most of them
    were, at the length nearest to the one tested."""
    measured = speeds(results)
    found = [_tradeoff(comparison, measured) for comparison in comparisons if comparison.form == "controlled"]
    return [one for one in found if one is not None and len(one.points) > 1]


def _tradeoff(comparison: Comparison, measured: Sequence[Speeds]) -> Tradeoff | None:
    rows = {
        layer: row
        for row in comparison.rows
        if row.accuracies and (layer := layer_of(row.results[0])) is not None
    }
    tested = comparison.results[0]["cell"]["task"]["settings"].get("seq_len", 0)
    found = {question: best_way(measured, question, rows, length=tested) for question in ASKED}
    ways = {question: way for question, way in found.items() if way is not None and len(way.rates) > 1}
    if not ways:
        return None
    shown = {layer: row for layer, row in rows.items() if any(layer in way.rates for way in ways.values())}
    widths = {row.width for row in shown.values()}
    alike = [row for row in comparison.rows if row.width in widths]
    names = _names(alike)
    return Tradeoff(
        f"{comparison.title}{_of_widths(widths, comparison)}",
        tuple(
            _point(
                names[row.label],
                row,
                {question: way.rates[layer] for question, way in ways.items() if layer in way.rates},
            )
            for layer, row in shown.items()
        ),
        {question: way.words for question, way in ways.items()},
        {
            question: [f"{names[row.label]}: {why}" for row in alike if (why := _why_not(row, way))]
            for question, way in ways.items()
        },
        comparison.results[0]["chance"],
        len(comparison.tests),
        _caption(comparison, ways.values()),
        (*comparison.results, *(way.results[layer] for way in ways.values() for layer in way.rates)),
        f"recall-speed-{comparison.slug}",
    )


def _point(name: str, row: Row, rates: dict[str, Rate]) -> Point:
    mixer = row.results[0]["cell"]["model"]["layers"][0]["mixer"]
    return Point(name, mixer, tuple(row.accuracies), rates, not row.in_verdicts)


def _caption(comparison: Comparison, ways: Iterable[Way]) -> str:
    about = "; ".join(way.about for way in ways)
    text = f"""Test accuracy, the mean over seeds with a bar from the worst to the best, against the measured speed of one such layer alone, the median
        with a bar between the fifths ({about}). A hollow
        mark: undertrained, or its learning rate in doubt. In grey: what has no accuracy or no such speed, of the same width. {over_answers(comparison)}
        {of_diverged(comparison)} {laws_said(comparison.rows)} {setting(comparison)}"""
    return " ".join(text.split())


def _names(rows: Sequence[Row]) -> dict[str, str]:
    """By their labels among all, shorter where these stand alone."""
    short = [row.results[0]["label"] for row in rows]
    return {
        row.label: row.label if short.count(label) > 1 else label
        for row, label in zip(rows, short, strict=True)
    }


def _of_widths(widths: Collection[int], comparison: Comparison) -> str:
    """Which of several they are."""
    several = len({row.width for row in comparison.rows}) > 1
    return f", width {' and '.join(map(str, sorted(widths)))}" if several else ""


def _why_not(row: Row, way: Way) -> str:
    """What became of a model that has no place; nothing where it has one."""
    if not row.accuracies:
        return became_of(row)
    layer = layer_of(row.results[0])
    if layer is None:
        return "of several layers"
    return "" if layer in way.rates else way.why_not(layer) or "not timed"


def _of_recall(tradeoff: Tradeoff) -> Drawing:
    def draw(figure: Figure) -> bool:
        names = (
            sum(question in point.rates for point in tradeoff.points) + len(missing)
            for question, missing in tradeoff.missing.items()
        )
        figure.set_size_inches(2 * (PANEL_INCHES + 1.4), max(3.6, 0.17 * max(names)))
        for axes, question in zip(
            figure.subplots(1, len(tradeoff.loads), squeeze=False).flat, tradeoff.loads, strict=True
        ):
            against_recall(axes, tradeoff, question)
        seeds = counted(max(len(point.accuracies) for point in tradeoff.points), "seed")
        titled(figure, f"{tradeoff.title}, controlled form, {seeds}: accuracy against speed")
        footnote(
            figure,
            tests=tradeoff.tests,
            hollow=any(point.doubtful for point in tradeoff.points),
            lawless=bool(broken(tradeoff.results)),
        )
        return True

    return Drawing(tradeoff.slug, draw, tradeoff.caption, fingerprint(tradeoff.results))


BELOW, ABOVE = 0.03, 0.04
"""Of the height from the worst accuracy, or chance, to 1: what is left free."""


def against_recall(axes: Axes, tradeoff: "Tradeoff", question: str) -> None:
    """Accuracy against tokens per second, a dot and a name for each model; hollow where its accuracy takes
    part in no verdict. In grey those without both."""
    points = [point for point in tradeoff.points if question in point.rates]
    # of all panels alike
    lowest = min([tradeoff.chance, *(accuracy for point in tradeoff.points for accuracy in point.accuracies)])
    styled = styles_of([point.mixer for point in points])
    ends = []
    for point, (colour, _, mark) in zip(points, styled, strict=True):
        rate = point.rates[question]
        face = "white" if point.doubtful else colour
        if point.accuracies and len(point.accuracies) > 1:
            axes.plot(
                [rate.median] * 2, [min(point.accuracies), max(point.accuracies)], color=colour, linewidth=0.8
            )
        axes.plot([rate.low, rate.high], [point.mean] * 2, color=colour, linewidth=0.8)
        axes.plot(
            [rate.median], [point.mean], marker=mark, markersize=4.5, color=colour, markerfacecolor=face
        )
        ends.append(Named(point.mean, rate.median, point.label, colour))
    axes.set(xscale="log", xlabel=f"tokens per second,\n{tradeoff.loads[question]}", ylabel="test accuracy")
    axes.set_ylim(lowest - BELOW * (1 - lowest), 1 + ABOVE * (1 - lowest))
    rate_ticks(axes)
    chance(axes, tradeoff.chance)
    beside(axes, ends, tradeoff.missing[question])
