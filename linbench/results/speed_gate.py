"""Stored speeds of a candidate beside those of a baseline: how many times as long every call takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from linbench.common.hashing import canonical
from linbench.common.text import pluralize
from linbench.experiments.labels import unique_labels
from linbench.results.gate_policy import Policy
from linbench.results.matching import SIDES, aligned, packages, speed_question
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.speeds import Rate, asked, machine, speed_of, told_apart_by

TIMED = ("train", "prefill", "decode")
"""Questions whose answer is a time."""


_ANSWERS = ("ok", "undeclared")
"""Statuses of what was measured, and of what a layer cannot be asked: it has nothing to carry on from."""


@dataclass(frozen=True)
class Pace:
    """One layer at one shape as both sides have it: tokens per second of our side, timed alike."""

    name: str
    timing: str
    baseline: Rate
    candidate: Rate
    marks: tuple[str, ...]
    """Of both sides; a speed that has any is never red."""
    allowed: float | None
    """How many times as long it may take; None: any."""

    @property
    def times(self) -> float:
        """How many times as long the candidate takes, by medians."""
        return self.baseline.median / self.candidate.median

    @property
    def between(self) -> tuple[float, float]:
        """The same by the fifths: at the least, and at the most."""
        return self.baseline.low / self.candidate.high, self.baseline.high / self.candidate.low

    @property
    def red(self) -> bool:
        """Whether it takes longer than it may, and the fifths of both sides lie apart."""
        return (
            self.allowed is not None and not self.marks and self.times > self.allowed and self.between[0] > 1
        )


def paces(
    baseline: Sequence[SpeedResult], candidate: Sequence[SpeedResult], policy: Policy
) -> tuple[list[Pace], list[str]]:
    """Of every layer and shape that was timed in both, whatever code it ran; and why others of the baseline
    cannot be compared, a sentence each. The very same machine must have timed both, whatever the policy lets
    differ."""
    before, after = (
        [result for result in side if result["bench"]["question"] in TIMED] for side in (baseline, candidate)
    )
    found: dict[str, dict[str, list[SpeedResult]]] = {}
    for side, results, questions in zip(
        SIDES, (before, after), aligned(before, after, asks=speed_question), strict=True
    ):
        for result, question in zip(results, questions, strict=True):
            found.setdefault(canonical(question), {}).setdefault(side, []).append(result)
    every = sorted(found.values(), key=_order)
    judged, problems = list[Pace](), list[str]()
    for name, both in zip(_names([_first(both) for both in every]), every, strict=True):
        if SIDES[0] not in both:
            continue
        if why := _why_not(name, both, policy):
            problems.append(why)
        elif pace := _pace(name, both[SIDES[0]][0], both[SIDES[1]][0], policy.slower):
            judged.append(pace)
    return judged, problems


def _first(both: Mapping[str, Sequence[SpeedResult]]) -> SpeedResult:
    return next(iter(both.values()))[0]


def _order(both: Mapping[str, Sequence[SpeedResult]]) -> tuple[int, str, int, int]:
    bench = _first(both)["bench"]
    return (
        TIMED.index(bench["question"]),
        _first(both)["label"],
        bench["shape"]["length"],
        bench["shape"]["batch"],
    )


def _names(results: Sequence[SpeedResult]) -> list[str]:
    """By what was asked of which layer; layers of one label are told apart by their settings, all else by
    shape."""
    layers = {canonical(told_apart_by(result)): result for result in results}
    labels = dict(
        zip(
            layers,
            unique_labels(
                [one["label"] for one in layers.values()], [told_apart_by(one) for one in layers.values()]
            ),
            strict=True,
        )
    )
    return [_name(result, labels[canonical(told_apart_by(result))]) for result in results]


def _name(result: SpeedResult, label: str) -> str:
    bench = result["bench"]
    peer = f", beside {bench['peer']['name']}" if bench["peer"] else ""
    batch = pluralize(bench["shape"]["batch"], "sequence")
    return (
        f"{label} {bench['layer']['form']}, {asked(bench['question'], bench['shape']['length'])}, {batch},"
        f" {bench['precision']}{peer}"
    )


def _why_not(name: str, both: Mapping[str, Sequence[SpeedResult]], policy: Policy) -> str | None:
    """What keeps the two from being compared, in a sentence; None: nothing."""
    if SIDES[1] not in both:
        return f"The speed of {name} is missing in the candidate."
    for side, results in both.items():
        if len(results) > 1:
            return (
                f"The speed of {name} is there {len(results)} times in the {side}, of different code; give"
                " folders that hold one run each."
            )
    before, after = (both[side][0] for side in SIDES)
    if before["status"] not in _ANSWERS:
        return (
            f"The speed of {name} was not measured in the baseline: {before['status']},"
            f" {str(before['reason']).rstrip('.')}."
        )
    if after["status"] != "ok" and before["status"] == "ok":
        return (
            f"The speed of {name} could not be measured in the candidate: {after['status']},"
            f" {str(after['reason']).rstrip('.')}."
        )
    here, there = (
        {"device": machine(one), **packages(one, one["bench"]["device"])} for one in (before, after)
    )
    for what in here:
        if here[what] != there.get(what) and (what == "device" or what not in policy.may_differ):
            return (
                f"The speed of {name} cannot be compared: {what} is {here[what]} in the baseline and"
                f" {there.get(what)} in the candidate."
            )
    return None


def _pace(name: str, before: SpeedResult, after: SpeedResult, allowed: float | None) -> Pace | None:
    """On the device alone where both were timed so; None where the baseline has no time."""
    for timing in (REPLAYED, AS_CALLED):
        rates = speed_of(before, OURS, timing), speed_of(after, OURS, timing)
        if rates[0] is not None and rates[1] is not None:
            marks = tuple(
                f"{side}: {', '.join(one['marks'])}"
                for side, one in zip(SIDES, (before, after), strict=True)
                if one["marks"]
            )
            return Pace(name, timing, rates[0], rates[1], marks, allowed)
    return None
