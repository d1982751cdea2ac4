"""Stored speeds of the layers that stored models are made of."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from linbench.common.hashing import canonical
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.schema.cells import CellResult
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED, TIMING_LABELS
from linbench.results.speeds import Rate, Series, Speeds, describe_question

QUESTIONS = ("train", "decode")
"""The questions whose speeds are shown beside accuracy."""


@dataclass(frozen=True)
class SpeedSelection:
    """Measurements of layers that may stand side by side: at one length, all timed alike.

    Attributes:
        results: by layer, also of layers that have no rate.
        rates: by layer.
    """

    speeds: Speeds
    length: int
    timing: str
    results: Mapping[str, SpeedResult]
    rates: Mapping[str, Rate]

    @property
    def description(self) -> str:
        """The quantity and load that were measured, in words."""
        return f"{describe_question(self.speeds.question, self.length)}, {self.speeds.load}"

    @property
    def full_description(self) -> str:
        """The quantity and load, with the timing, precision and device."""
        return (
            f"{self.description}, {TIMING_LABELS[self.timing]}, {self.speeds.precision}, {self.speeds.device}"
        )

    def missing_reason(self, layer: str) -> str | None:
        """Return in a word why a measured layer has no rate; None if it has one, or was not measured."""
        result = self.results.get(layer)
        if result is None or layer in self.rates:
            return None
        own = (series for series in self.speeds.series if result in series.results.values())
        if any(series.outdated(self.length) for series in own):
            return "older kernel"
        return str(result["status"]) if result["status"] != "ok" else ", ".join(result["marks"])


def layer_key(result: CellResult) -> str | None:
    """Return the layer that a model is made of, as the identity of speeds has it; None if it has several."""
    model = result["cell"]["model"]
    layers = {
        canonical({"form": model["form"], "d_model": model["backbone"]["settings"]["d_model"], **layer})
        for layer in model["layers"]
    }
    return layers.pop() if len(layers) == 1 else None


def select_speeds(
    measured: Iterable[Speeds], question: str, layers: Collection[str], *, length: int
) -> SpeedSelection | None:
    """Return the measurements in which most of some layers have a rate; None if none of them was measured.

    Measurements with a mark, such as those beside other programs or with a throttled clock, have no rate.
    Those of a single sequence are left out, since models are trained and tested in batches.

    Args:
        measured: all speeds to choose from.
        question: the quantity, `train` or `decode`.
        layers: the layers, as `layer_of` returns them.
        length: the preferred length; of equal choices the nearest in ratio is taken.
    """
    ways = [
        _selection(these, at, layers)
        for these in measured
        if these.question == question and these.load != "one sequence"
        for at in these.lengths
    ]

    def fitness(way: SpeedSelection) -> tuple[int, int, float, str]:
        return len(way.rates), len(way.results), -abs(math.log(way.length / max(length, 1))), way.speeds.load

    return max((way for way in ways if way.results), key=fitness, default=None)


def _selection(these: Speeds, length: int, layers: Collection[str]) -> SpeedSelection:
    """Return the rates of layers at a length: replayed if all were timed so, else as called."""
    ours: dict[str, Series] = {}
    for series in these.series:
        layer = canonical(series.sample["bench"]["layer"])
        if series.side == OURS and layer in layers:
            ours[layer] = series
    results = {layer: series.results[length] for layer, series in ours.items() if length in series.results}
    sound = {layer: ours[layer] for layer, result in results.items() if not result["marks"]}
    found: dict[str, dict[str, Rate]] = {REPLAYED: {}, AS_CALLED: {}}
    for timing, rates in found.items():
        for layer, series in sound.items():
            rate = series.rate(length, timing)
            if rate is not None:
                rates[layer] = rate
    timing = REPLAYED if len(found[REPLAYED]) == len(found[AS_CALLED]) else AS_CALLED
    return SpeedSelection(these, length, timing, results, found[timing])
