"""The source of measures of speed: timings of layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import Field, field_validator

from linbench.bench.case import cpu_independent_id
from linbench.bench.layer import LayerCase
from linbench.bench.presets import PRESETS, layer_cases, resolve_preset
from linbench.claims.evidence import Evidence
from linbench.claims.measure import Measure, Source, Work
from linbench.claims.schema import MeasureSettings
from linbench.claims.speed_evidence import SpeedEvidence, speed_evidence
from linbench.claims.stored_results import Stored
from linbench.common.errors import UserError
from linbench.common.settings import Settings
from linbench.experiments.device import device_class
from linbench.experiments.precision import pick_precision
from linbench.results.schema.benchmarks import SpeedResult

TRAINING = "training tokens per second"
"""The speed of forward and backward.

On a GPU it is the time of the device alone (calls are replayed from a CUDA graph), on a CPU the time that a
caller waits.
"""


class Shapes(Settings):
    """The shapes at which layers are timed, in their native form.

    They are timed as by `linbench bench length`: every batch has the same number of tokens; bf16 on a GPU,
    fp32 on a CPU.
    """

    preset: str = Field(description="preset of widths, heads and tokens in a batch")
    lengths: tuple[int, ...] = Field(min_length=1, description="tokens in a sequence")

    @field_validator("preset")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in PRESETS:
            raise ValueError(f"presets are {', '.join(PRESETS)}")
        return value

    def case(self, model: str, length: int, *, device: str) -> LayerCase:
        """Return the benchmark of a layer in training.

        Raises:
            UserError: there is no such model, or a batch does not hold a sequence of that length.
        """
        preset = resolve_preset(self.preset, lengths=[length])
        (case,) = layer_cases([model], preset, device=device)
        return replace(case, question="train", batch=preset.batch(length))


@cache
def _stored_key(preset: str, model: str, length: int, kind: str) -> str:
    """Return the key of a timing in `Stored.timed`; kept, since sizing a layer is slow."""
    case = Shapes(preset=preset, lengths=(length,)).case(model, length, device="cpu")
    return cpu_independent_id({**case.identity, "device": kind, "precision": pick_precision(None, kind)})


@dataclass(frozen=True)
class TimingSource(Source):
    """Timings of layers at the lengths that a file of claims names."""

    name: str
    shapes: Shapes

    @classmethod
    def read(cls, name: str, given: Mapping[str, Any], models: Sequence[str], where: str) -> "TimingSource":
        """Read shapes. Raises UserError: see `Source.read`."""
        return cls(name, Shapes.parse(given, where=where))

    def settings(self, model: str) -> dict[str, Any]:
        """Return the shapes that are timed."""
        return self.shapes.model_dump(mode="json")

    def check(self, settings: MeasureSettings, where: str) -> None:
        """Raise UserError if the model, the quantity or the length is not one of a timing."""
        if not settings.model:
            raise UserError(f"{where}: name the model that is timed.")
        if settings.of != TRAINING:
            raise UserError(f"{where}.of = {settings.of}: timings of layers have {TRAINING} only.")
        lengths = self.shapes.lengths
        if set(settings.where) != {"length"} or settings.where["length"] not in lengths:
            raise UserError(
                f"{where}.where must name a length and nothing else; lengths are"
                f" {', '.join(map(str, lengths))}."
            )

    def work(self, measure: Measure, device: str, seeds: int) -> Work:
        """Return the timing of a measure."""
        case = self.shapes.case(measure.model, measure.settings.where["length"], device=device)
        return Work(timings=(case,))

    def missing(self, measure: Measure, stored: Stored, device: str, seeds: int) -> Work:
        """Return its timing, if there is none or it must be repeated."""
        done = not self._evidence(measure, stored, device_class(device)).missing
        return Work() if done else self.work(measure, device, seeds)

    def evidence(self, measure: Measure, stored: Stored, kind: str, seeds: int) -> Evidence:
        """Return the speed of a layer."""
        return self._evidence(measure, stored, kind)

    def result_ids(self, measure: Measure, stored: Stored, kind: str, seeds: int) -> set[str]:
        """Return the id of its timing, if there is one."""
        result = self._result(measure, stored, kind)
        return set() if result is None else {result["id"]}

    def _evidence(self, measure: Measure, stored: Stored, kind: str) -> SpeedEvidence:
        return speed_evidence(self._result(measure, stored, kind), kind)

    def _result(self, measure: Measure, stored: Stored, kind: str) -> SpeedResult | None:
        """Return the timing of a measure; of several CPUs, the latest."""
        length = measure.settings.where["length"]
        return stored.timed.get(_stored_key(self.shapes.preset, measure.model, length, kind))
