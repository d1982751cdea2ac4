"""Recall against speed: stored accuracies of controlled models beside the measured speed of the very same layers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from linbench.cell import canonical
from linbench.report.tables import caption as caption_of
from linbench.results import Comparison, Row
from linbench.speeds import AS_CALLED, OURS, REPLAYED, Series, Speeds, speeds
from linbench.store import NO_VERDICT, Result

ASKED = ("train", "decode")


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
    rows = {_layer_of(row): row for row in comparison.rows if row.accuracies and len({canonical(x) for x in _layers(row)}) == 1}
    tested = comparison.results[0]["cell"]["task"]["settings"].get("seq_len", 0)
    chosen: dict[str, tuple[Speeds, int]] = {}
    for question in ASKED:
        ways = [(these, length) for these in measured if these.question == question and these.load != "one sequence" for length in these.lengths]
        best = max(ways, key=lambda way: (len(_rates(way, rows)), -abs(math.log(way[1] / max(tested, 1))), way[0].load), default=None)
        if best is not None and len(_rates(best, rows)) > 1:
            chosen[question] = best
    if not chosen:
        return None
    rates = {question: _rates(way, rows) for question, way in chosen.items()}
    shown = {layer: row for layer, row in rows.items() if any(layer in of for of in rates.values())}
    labels = [row.results[0]["label"] for row in shown.values()]
    points = [
        Point(
            row.label if labels.count(label := row.results[0]["label"]) > 1 else label,
            _layers(row)[0]["mixer"],
            tuple(row.accuracies),
            {question: of[layer][0] for question, of in rates.items() if layer in of},
            any(mark in NO_VERDICT for result in row.results for mark in result["marks"]),
        )
        for layer, row in shown.items()
    ]
    used = [of[layer][1] for of in rates.values() for layer in of]
    loads = {question: _load(these, length) for question, (these, length) in chosen.items()}
    about = "; ".join(f"{words}, {these.precision}, {these.device}" for words, (these, _) in zip(loads.values(), chosen.values(), strict=True))
    return Tradeoff(
        comparison.title,
        tuple(points),
        loads,
        comparison.results[0]["chance"],
        f"Test accuracy, the mean over seeds with a bar from the worst to the best, against the measured speed of one such layer alone ({about}). A hollow "
        f"mark: undertrained, or its learning rate in doubt. {caption_of(comparison)}",
        (*comparison.results, *used),
        f"recall-speed-{comparison.slug}",
    )


def _load(these: Speeds, length: int) -> str:
    words = {"train": f"training at T {length:,}", "decode": f"decoding after {length:,} tokens"}[these.question]
    return f"{words}, {these.load}"


def _rates(way: tuple[Speeds, int], rows: dict[str, Row]) -> dict[str, tuple[float, Result]]:
    """By layer, tokens per second and the result that has them."""
    these, length = way
    found = {}
    for series in these.series:
        if series.side == OURS and (layer := canonical(series.any["bench"]["layer"])) in rows and (rate := _rate(series, length)) is not None:
            found[layer] = rate, series.results[length]
    return found


def _rate(series: Series, length: int) -> float | None:
    rate = series.rate(length, REPLAYED) or series.rate(length, AS_CALLED)
    return None if rate is None else rate.median


def _layers(row: Row) -> list[dict[str, str]]:
    layers: list[dict[str, str]] = row.results[0]["cell"]["model"]["layers"]
    return layers


def _layer_of(row: Row) -> str:
    """As a speed's identity has it."""
    model = row.results[0]["cell"]["model"]
    return canonical({"form": model["form"], "d_model": model["backbone"]["settings"]["d_model"], **model["layers"][0]})
