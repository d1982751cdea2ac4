"""Stored speeds of the very layers that stored models are made of."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from linbench.common.hashing import canonical
from linbench.results.kernel_changes import outdated
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.schema.cells import CellResult
from linbench.results.speed_labels import AS_CALLED, HOW, OURS, REPLAYED
from linbench.results.speeds import Rate, Speeds, asked

ASKED = ("train", "decode")
"""The questions whose speeds stand beside what a model recalls."""


@dataclass(frozen=True)
class Way:
    """One way in which layers were measured: among speeds that may stand side by side, at a length, all timed
    alike. results: by layer, also of those that have no rate."""

    speeds: Speeds
    length: int
    timing: str
    results: Mapping[str, SpeedResult]
    rates: Mapping[str, Rate]

    @property
    def words(self) -> str:
        """What was measured."""
        return f"{asked(self.speeds.question, self.length)}, {self.speeds.load}"

    @property
    def about(self) -> str:
        """The same, and how and where."""
        return f"{self.words}, {HOW[self.timing]}, {self.speeds.precision}, {self.speeds.device}"

    def why_not(self, layer: str) -> str | None:
        """Why a layer that was measured this way has no rate here, in a word; None: it was not, or it has."""
        result = self.results.get(layer)
        if result is None or layer in self.rates:
            return None
        if outdated(result):
            return "older kernel"
        return str(result["status"]) if result["status"] != "ok" else ", ".join(result["marks"])


def layer_of(result: CellResult) -> str | None:
    """The layer that a model is made of, as a speed's identity has it; None where it is made of several."""
    model = result["cell"]["model"]
    layers = {
        canonical({"form": model["form"], "d_model": model["backbone"]["settings"]["d_model"], **layer})
        for layer in model["layers"]
    }
    return layers.pop() if len(layers) == 1 else None


def best_way(
    measured: Iterable[Speeds], question: str, layers: Collection[str], *, length: int
) -> Way | None:
    """Of all ways in which a question was put to these layers that in which most have a rate, at the length
    nearest to one; None where it was not.

    What was measured while others were at work, or by a clock that was held back, has none. A sequence alone
    is left aside, as models are trained and judged in batches.
    """
    ways = [
        _way(these, at, layers)
        for these in measured
        if these.question == question and these.load != "one sequence"
        for at in these.lengths
    ]

    def fitness(way: Way) -> tuple[int, int, float, str]:
        return len(way.rates), len(way.results), -abs(math.log(way.length / max(length, 1))), way.speeds.load

    return max((way for way in ways if way.results), key=fitness, default=None)


def _way(these: Speeds, length: int, layers: Collection[str]) -> Way:
    """On the device alone where all layers were timed so, else as called."""
    ours = {
        layer: series
        for series in these.series
        if series.side == OURS and (layer := canonical(series.any["bench"]["layer"])) in layers
    }
    results = {layer: series.results[length] for layer, series in ours.items() if length in series.results}
    sound = {layer: ours[layer] for layer, result in results.items() if not result["marks"]}
    found = {
        timing: {
            layer: rate
            for layer, series in sound.items()
            if (rate := series.rate(length, timing)) is not None
        }
        for timing in (REPLAYED, AS_CALLED)
    }
    timing = REPLAYED if len(found[REPLAYED]) == len(found[AS_CALLED]) else AS_CALLED
    return Way(these, length, timing, results, found[timing])
