"""Recall against speed: stored accuracies of controlled models beside the measured speed of the very same layers."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from linbench.layer_speeds import ASKED, Way, best_way, layer_of
from linbench.record import Result
from linbench.report.captions import of_diverged, over_answers
from linbench.report.labels import became_of
from linbench.report.tables import setting
from linbench.results import Comparison, Row, laws_said
from linbench.speeds import Rate, Speeds, speeds


@dataclass(frozen=True)
class Point:
    """A model of a comparison: its accuracies, one for each seed, and tokens per second of its layer by question."""

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
    """Models of one comparison whose layers were measured. loads: by question in words at which batch and length; missing: what stands in no place there,
    and why; tests: of how many an accuracy is the mean."""

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
    """For each comparison in the controlled form that has a metric of recall, and of which at least two models have layers that were measured: of all that were
    measured in the same way the way that most of them were, at the length nearest to the one tested."""
    measured = speeds(results)
    found = [_tradeoff(comparison, measured) for comparison in comparisons if comparison.form == "controlled"]
    return [one for one in found if one is not None and len(one.points) > 1]


def _tradeoff(comparison: Comparison, measured: Sequence[Speeds]) -> Tradeoff | None:
    rows = {layer: row for row in comparison.rows if row.accuracies and (layer := layer_of(row.results[0])) is not None}
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
            _point(names[row.label], row, {question: way.rates[layer] for question, way in ways.items() if layer in way.rates}) for layer, row in shown.items()
        ),
        {question: way.words for question, way in ways.items()},
        {question: [f"{names[row.label]}: {why}" for row in alike if (why := _why_not(row, way))] for question, way in ways.items()},
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
    return {row.label: row.label if short.count(label) > 1 else label for row, label in zip(rows, short, strict=True)}


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
