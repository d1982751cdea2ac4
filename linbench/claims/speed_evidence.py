"""Evidence from the timing of a layer: tokens per second, and how sure that number is."""

from dataclasses import dataclass
from typing import Any

from linbench.bench.machine import BUSY
from linbench.claims.evidence import Evidence, Obstacle
from linbench.claims.interval import Interval, point
from linbench.results.kernel_changes import outdated_reason
from linbench.results.roofline import timing_of
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.speeds import Rate, Series

LEAST_CALLS = 5
"""The fewest calls that say how much calls differ."""

NOT_TIMED = "not timed yet"


@dataclass(frozen=True)
class SpeedEvidence(Evidence):
    """The median rate over calls. In rules it may be anything from the 20th to the 80th percentile."""

    rate: Rate | None = None
    """None: nothing was timed."""
    calls: int = 0
    marks: tuple[str, ...] = ()
    obstacle: str = ""
    """Why it decides nothing; empty if it decides."""
    missing: int = 0
    """1 if the layer is to be timed, or to be timed again."""

    has_seeds = False

    @property
    def obstacles(self) -> list[Obstacle]:
        """The reason why it decides nothing; empty if it decides."""
        return [Obstacle(self.obstacle)] if self.obstacle else []

    @property
    def seen(self) -> bool:
        """True if there is a result."""
        return self.rate is not None or not self.missing

    @property
    def has_value(self) -> bool:
        """True if there is a rate."""
        return self.rate is not None

    def of_seed(self, seed: int) -> Interval | None:
        """Return what is known of the rate, which has no seeds; None: nothing that decides."""
        return None if self.obstacle else self.spread

    @property
    def between(self) -> Interval:
        """The median over calls, in tokens per second."""
        assert self.rate, "only evidence with a rate is asked for it"
        return point(self.rate.median)

    @property
    def spread(self) -> Interval:
        """The 20th and the 80th percentile of calls."""
        assert self.rate, "only evidence with a rate is asked for it"
        return Interval(self.rate.low, self.rate.high)

    @property
    def out_of(self) -> str:
        """The number of calls and their marks, or why there is no rate."""
        return ", ".join([f"{self.calls} calls", *self.marks]) if self.rate else self.obstacle

    def to_json(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        median, low, high = self.rate or (None, None, None)
        return {
            "value": median,
            "low": low,
            "high": high,
            "calls": self.calls,
            "marks": list(self.marks),
            "missing": self.missing,
        }

    def __str__(self) -> str:
        if not self.rate:
            return "–"
        return f"{self.rate.median:,.0f} ({self.rate.low:,.0f} to {self.rate.high:,.0f})"


def speed_evidence(result: SpeedResult | None, kind: str) -> SpeedEvidence:
    """Read the rate of a timing on a kind of device.

    A timing that ran beside other programs, or in few calls, decides nothing and is to be repeated. One with
    a throttled clock counts: under full load a GPU always runs at its power limit.
    """
    if result is None:
        return SpeedEvidence(obstacle=NOT_TIMED, missing=1)
    marks = tuple(result["marks"])
    if result["status"] != "ok":
        return SpeedEvidence(marks=marks, obstacle=f"could not be timed ({result['status']})")
    if reason := outdated_reason(result):
        return SpeedEvidence(marks=marks, obstacle=f"timed with code {reason}", missing=1)
    length = result["bench"]["shape"]["length"]
    timing = AS_CALLED if kind == "cpu" else REPLAYED
    rate = Series(result["label"], OURS, {length: result}).rate(length, timing)
    if rate is None:
        return SpeedEvidence(marks=marks, obstacle="could not be replayed as a CUDA graph")
    seconds = timing_of(result, OURS, timing)
    calls = seconds["calls"] if seconds else 0
    obstacle = ""
    if BUSY in marks:
        obstacle = "timed while other programs used the device"
    elif calls < LEAST_CALLS:
        obstacle = f"timed in fewer than {LEAST_CALLS} calls"
    return SpeedEvidence(rate, calls, marks, obstacle, missing=int(bool(obstacle)))
