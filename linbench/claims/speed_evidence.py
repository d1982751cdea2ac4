"""What a measure of a layer that is timed came to: tokens per second, and how sure that is."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from linbench.bench.layer import Case
from linbench.bench.machine import BUSY
from linbench.claims.claim import Claim
from linbench.claims.interval import Span, exactly
from linbench.claims.stored_results import Stored
from linbench.experiments.device import device_class
from linbench.results.kernel_changes import outdated
from linbench.results.record import Result
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.speeds import Rate, Series

LEAST_CALLS = 5
"""Fewer say little of how they spread."""


@dataclass(frozen=True)
class Speed:
    """Of one kind of device. The spread of calls stands in the place of that over seeds."""

    rate: Rate | None = None
    """None where nothing was timed."""
    calls: int = 0
    marks: tuple[str, ...] = ()
    trouble: str = ""
    """Why it decides nothing; empty where it does."""
    missing: bool = False
    """Whether it is to be timed, or to be timed again."""

    short = bounded = False
    """More training says nothing of speed."""

    qualifiers = ()
    """No learning rate is chosen."""

    whole = "all medians"
    """By what an answer is found before it is doubted."""

    @property
    def seen(self) -> bool:
        """Whether there is a result."""
        return self.rate is not None or not self.missing

    @property
    def value(self) -> float:
        """The median over calls."""
        assert self.rate, "of what decides nothing no value is asked for"
        return self.rate.median

    @property
    def span(self) -> Span:
        """It is known."""
        return exactly(self.value)

    @property
    def spread(self) -> float:
        """Half of what lies between the fifths."""
        return self.rate.spread * self.rate.median if self.rate else 0.0

    def others(self, name: str) -> Iterator[tuple[str, "Speed"]]:
        """What it would be at either fifth, in words."""
        assert self.rate, "as of its value"
        for words, fifth in (("lower", self.rate.low), ("upper", self.rate.high)):
            yield f"with {name} at its {words} fifth", Speed(self.rate._replace(median=fifth))

    @property
    def out_of(self) -> str:
        """How many calls it is the median of, and how they are marked; or why there is none."""
        return ", ".join([f"{self.calls} calls", *self.marks]) if self.rate else self.trouble

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        median, low, high = self.rate or (None, None, None)
        spread = self.spread if self.rate else None
        return {
            "value": median,
            "spread": spread,
            "low": low,
            "high": high,
            "calls": self.calls,
            "marks": list(self.marks),
            "missing": int(self.missing),
        }

    def __str__(self) -> str:
        return f"{self.value:,.0f} ± {self.spread:,.0f}" if self.rate else "–"


def speed(claim: Claim, name: str, stored: Stored, kind: str) -> Speed:
    """A measure's on a kind of device. What was timed while others were at work there, or in a few calls,
    decides nothing and is to be timed again; what was timed while the clock was held back counts, as full
    load takes a GPU to its limit of power."""
    result = result_of(claim, name, stored, kind)
    if result is None:
        return Speed(trouble="not timed", missing=True)
    marks = tuple(result["marks"])
    if result["status"] != "ok":
        return Speed(marks=marks, trouble=result["status"])
    length, timing = result["bench"]["shape"]["length"], AS_CALLED if kind == "cpu" else REPLAYED
    if old := outdated(result):
        return Speed(marks=marks, trouble=old, missing=True)
    rate = Series(result["label"], OURS, {length: result}).rate(length, timing)
    if rate is None:
        return Speed(marks=marks, trouble="could not be replayed")
    calls = int(result["sides"][OURS][timing]["calls"])
    trouble = BUSY if BUSY in marks else f"fewer than {LEAST_CALLS} calls" if calls < LEAST_CALLS else ""
    return Speed(rate, calls, marks, trouble, missing=bool(trouble))


def result_of(claim: Claim, name: str, stored: Stored, kind: str) -> Result | None:
    """Of a measure on a kind of device; of several CPUs' the last."""
    measure = claim.measures[name]
    return stored.timed.get(claim.benches[measure.cells].asked(measure.model, measure.where["length"], kind))


def untimed(claim: Claim, stored: Stored, *, device: str) -> list[Case]:
    """What is to be timed on a device of all that decides a claim."""
    missing = [
        claim.measures[name]
        for name in claim.timed
        if speed(claim, name, stored, device_class(device)).missing
    ]
    return [
        claim.benches[measure.cells].case(measure.model, measure.where["length"], device=device)
        for measure in missing
    ]
