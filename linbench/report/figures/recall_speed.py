"""Recall against speed, for the models of a comparison whose layers were timed."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Sheet

from linbench.common.text import pluralize
from linbench.report.data import ReportData
from linbench.report.figure import DataFigure, Drawing
from linbench.report.style.axes import rate_ticks
from linbench.report.style.colors import styles_of
from linbench.report.style.labels import (
    Named,
    add_title,
    chance_line,
    footnote,
    label_lines,
    status_summary,
)
from linbench.report.style.layout import PANEL_INCHES
from linbench.report.style.wording import HOLLOW, SEED_BARS, averaged_answers, diverged_runs, setting
from linbench.results.comparison import Comparison, Row, broken_laws, law_warning
from linbench.results.layer_speeds import QUESTIONS, SpeedSelection, layer_key, select_speeds
from linbench.results.record import fingerprint
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.schema.cells import CellResult
from linbench.results.speeds import Rate, Speeds, speeds

BELOW, ABOVE = 0.03, 0.04
"""The room left free below and above, as shares of the height from the worst accuracy, or chance, to 1."""


@dataclass(frozen=True)
class Point:
    """A model of a comparison: an accuracy for each seed, and tokens per second of its layer by question."""

    label: str
    mixer: str
    accuracies: tuple[float, ...]
    rates: dict[str, Rate]
    doubtful: bool

    @property
    def mean(self) -> float:
        """The mean accuracy over seeds."""
        return fmean(self.accuracies)


@dataclass(frozen=True)
class RecallSpeed:
    """Models of one comparison whose layers were measured.

    Attributes:
        title: the comparison, and the widths of the models.
        points: the models.
        loads: by question, the batch and length at which layers were measured.
        missing: by question, the models that have no point, each with the reason.
        chance: the chance level.
        tests: the number of tests of which an accuracy is the mean.
        caption: stands below the figure.
        results: everything that the figure is drawn from.
        slug: a name for files.
    """

    title: str
    points: tuple[Point, ...]
    loads: dict[str, str]
    missing: dict[str, list[str]]
    chance: float
    tests: int
    caption: str
    results: tuple[CellResult | SpeedResult, ...]
    slug: str


def drawings(data: ReportData) -> list[Drawing]:
    """Return a drawing for each comparison of which layers were measured."""
    return [
        Drawing(
            found.slug,
            partial(draw, found=found),
            found.caption,
            fingerprint(found.results),
            f"Accuracy against speed: {found.title}, controlled form",
        )
        for found in recall_speeds(data.speeds, data.comparisons)
    ]


def recall_speeds(results: Iterable[SpeedResult], comparisons: Sequence[Comparison]) -> list[RecallSpeed]:
    """Return accuracy and speed for each controlled comparison of which at least two layers were measured.

    Of the ways in which layers were measured that is taken in which most of them were, at the length nearest
    to the one tested.
    """
    measured = speeds(results)
    found = [_recall_speed(one, measured) for one in comparisons if one.form == "controlled"]
    return [one for one in found if one is not None and len(one.points) > 1]


def _recall_speed(comparison: Comparison, measured: Sequence[Speeds]) -> RecallSpeed | None:
    rows = dict[str, Row]()
    for row in comparison.rows:
        layer = layer_key(row.results[0])
        if row.accuracies and layer is not None:
            rows[layer] = row
    tested = comparison.results[0]["cell"]["task"]["settings"].get("seq_len", 0)
    ways = dict[str, SpeedSelection]()
    for question in QUESTIONS:
        way = select_speeds(measured, question, rows, length=tested)
        if way is not None and len(way.rates) > 1:
            ways[question] = way
    if not ways:
        return None
    shown = {layer: row for layer, row in rows.items() if any(layer in way.rates for way in ways.values())}
    widths = {row.width for row in shown.values()}
    alike = [row for row in comparison.rows if row.width in widths]
    names = _names(alike)
    points = []
    for layer, row in shown.items():
        rates = {question: way.rates[layer] for question, way in ways.items() if layer in way.rates}
        points.append(_point(names[row.label], row, rates))
    timed = [way.results[layer] for way in ways.values() for layer in way.rates]
    return RecallSpeed(
        f"{comparison.title}{_widths(widths, comparison)}",
        tuple(points),
        {question: way.description for question, way in ways.items()},
        {question: _missing(alike, names, way) for question, way in ways.items()},
        comparison.results[0]["chance"],
        len(comparison.tests),
        _caption(comparison, ways.values()),
        (*comparison.results, *timed),
        f"recall-speed-{comparison.slug}",
    )


def _point(name: str, row: Row, rates: dict[str, Rate]) -> Point:
    mixer = row.results[0]["cell"]["model"]["layers"][0]["mixer"]
    return Point(name, mixer, tuple(row.accuracies), rates, not row.eligible)


def _caption(comparison: Comparison, ways: Iterable[SpeedSelection]) -> str:
    about = "; ".join(way.full_description for way in ways)
    text = f"""Test accuracy against the speed of one layer of the model, which was measured alone ({about}).
        {SEED_BARS} A mark stands at the median speed, and its other bar reaches from the slowest fifth of the
        calls to the fastest. {HOLLOW} Names in grey are models of the same width that have no accuracy or
        no such speed. {averaged_answers(comparison)} {diverged_runs(comparison)}
        {law_warning(comparison.rows)} {setting(comparison)}"""
    return " ".join(text.split())


def _names(rows: Sequence[Row]) -> dict[str, str]:
    """Return names of models by their labels among all; shorter ones where these are unique."""
    short = [row.results[0]["label"] for row in rows]
    return {
        row.label: row.label if short.count(label) > 1 else label
        for row, label in zip(rows, short, strict=True)
    }


def _widths(widths: Collection[int], comparison: Comparison) -> str:
    """Return the widths that are shown, where the comparison has several."""
    several = len({row.width for row in comparison.rows}) > 1
    return f", width {' and '.join(map(str, sorted(widths)))}" if several else ""


def _missing(rows: Sequence[Row], names: dict[str, str], way: SpeedSelection) -> list[str]:
    """Return the models without a point, each with the reason."""
    reasons = {row.label: _why_missing(row, way) for row in rows}
    return [f"{names[label]}: {why}" for label, why in reasons.items() if why]


def _why_missing(row: Row, way: SpeedSelection) -> str:
    """Return why a model has no point; nothing where it has one."""
    if not row.accuracies:
        return status_summary(row)
    layer = layer_key(row.results[0])
    if layer is None:
        return "of several layers"
    return "" if layer in way.rates else way.missing_reason(layer) or "not timed"


def draw(sheet: Sheet, found: RecallSpeed) -> bool:
    """Draw a panel for each question."""
    counts = []
    for question, missing in found.missing.items():
        counts.append(sum(question in point.rates for point in found.points) + len(missing))
    sheet.set_size_inches(2 * (PANEL_INCHES + 1.4), max(3.6, 0.17 * max(counts)))
    panels = sheet.subplots(1, len(found.loads), squeeze=False).flat
    for axes, question in zip(panels, found.loads, strict=True):
        draw_panel(axes, found, question)
    seeds = pluralize(max(len(point.accuracies) for point in found.points), "seed")
    add_title(sheet, f"{found.title}, controlled form, {seeds}: accuracy against speed")
    footnote(
        sheet,
        tests=found.tests,
        hollow=any(point.doubtful for point in found.points),
        lawless=bool(broken_laws(found.results)),
    )
    return True


def draw_panel(axes: Axes, found: RecallSpeed, question: str) -> None:
    """Draw accuracy against speed on axes of their own, the accuracies on the same scale in all panels."""
    points = [point for point in found.points if question in point.rates]
    accuracies = [accuracy for point in found.points for accuracy in point.accuracies]
    lowest = min([found.chance, *accuracies])
    ends = []
    for point, (colour, _, mark) in zip(points, styles_of([point.mixer for point in points]), strict=True):
        rate, mean, seeds = point.rates[question], point.mean, point.accuracies
        face = "white" if point.doubtful else colour
        if len(seeds) > 1:
            axes.plot([rate.median] * 2, [min(seeds), max(seeds)], color=colour, linewidth=0.8)
        axes.plot([rate.low, rate.high], [mean] * 2, color=colour, linewidth=0.8)
        axes.plot([rate.median], [mean], marker=mark, markersize=4.5, color=colour, markerfacecolor=face)
        ends.append(Named(mean, rate.median, point.label, colour))
    axes.set(xscale="log", xlabel=f"tokens per second,\n{found.loads[question]}", ylabel="test accuracy")
    axes.set_ylim(lowest - BELOW * (1 - lowest), 1 + ABOVE * (1 - lowest))
    rate_ticks(axes)
    chance_line(axes, found.chance)
    label_lines(axes, ends, found.missing[question])


FIGURE = DataFigure(name="recall-speed", order=220, make=drawings)
