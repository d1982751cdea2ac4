"""Recall against speed: stored accuracies of controlled models beside the measured speed of the very same layers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from linbench.layer_speeds import ASKED, best_way, layer_of
from linbench.report.tables import setting
from linbench.results import Comparison
from linbench.speeds import Speeds, speeds
from linbench.store import Result


@dataclass(frozen=True)
class Point:
    """A model of a comparison: its accuracies, one for each seed, and tokens per second of its layer by question."""

    label: str
    mixer: str
    accuracies: tuple[float, ...]
    rates: dict[str, float]
    doubtful: bool

    @property
    def mean(self) -> float:
        """Over seeds."""
        return fmean(self.accuracies)


@dataclass(frozen=True)
class Tradeoff:
    """Models of one comparison whose layers were measured. loads: by question in words at which batch and length."""

    title: str
    points: tuple[Point, ...]
    loads: dict[str, str]
    chance: float
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
    labels = [row.results[0]["label"] for row in shown.values()]
    points = [
        Point(
            row.label if labels.count(label := row.results[0]["label"]) > 1 else label,
            row.results[0]["cell"]["model"]["layers"][0]["mixer"],
            tuple(row.accuracies),
            {question: way.rates[layer].median for question, way in ways.items() if layer in way.rates},
            not row.in_verdicts,
        )
        for layer, row in shown.items()
    ]
    about = "; ".join(way.about for way in ways.values())
    return Tradeoff(
        comparison.title,
        tuple(points),
        {question: way.words for question, way in ways.items()},
        comparison.results[0]["chance"],
        f"Test accuracy, the mean over seeds with a bar from the worst to the best, against the measured speed of one such layer alone ({about}). A hollow "
        f"mark: undertrained, or its learning rate in doubt. {setting(comparison)}",
        (*comparison.results, *(way.results[layer] for way in ways.values() for layer in way.rates)),
        f"recall-speed-{comparison.slug}",
    )
