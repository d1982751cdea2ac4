"""The gate of speeds: how many times as long each call of a candidate takes as the baseline's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from linbench.common.hashing import canonical
from linbench.common.text import pluralize
from linbench.experiments.labels import unique_labels
from linbench.results.gate_policy import Policy
from linbench.results.matching import SIDES, align_identities, code_free_speed_identity, packages
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.speeds import Rate, describe_question, distinguishing_fields, machine_of, speed_of

TIMED = ("train", "prefill", "decode")
"""The questions whose answer is a time."""


_ANSWERS = ("ok", "undeclared")
"""The statuses of results that were measured, or that a layer without a declared state cannot have."""


@dataclass(frozen=True)
class SpeedRatio:
    """The rates of a layer at one shape on both sides: linbench's tokens per second, timed alike."""

    name: str
    timing: str
    baseline: Rate
    candidate: Rate
    marks: tuple[str, ...]
    """The marks of both sides. A speed that has any is never red."""
    allowed: float | None
    """The largest allowed ratio of times; None if speeds are not gated."""

    @property
    def ratio(self) -> float:
        """The candidate's time over the baseline's, by medians."""
        return self.baseline.median / self.candidate.median

    @property
    def ratio_bounds(self) -> tuple[float, float]:
        """The lowest and highest ratio of times, by the fifths."""
        return self.baseline.low / self.candidate.high, self.baseline.high / self.candidate.low

    @property
    def red(self) -> bool:
        """True if the ratio is larger than allowed and the fifths of both sides do not overlap."""
        return (
            self.allowed is not None
            and not self.marks
            and self.ratio > self.allowed
            and self.ratio_bounds[0] > 1
        )


def speed_ratios(
    baseline: Sequence[SpeedResult], candidate: Sequence[SpeedResult], policy: Policy
) -> tuple[list[SpeedRatio], list[str]]:
    """Compare the speeds of every layer and shape that both sides have, whatever their code.

    The same machine must have timed both, whatever the policy lets differ.

    Returns:
        the ratios, and a sentence for each speed of the baseline that cannot be compared.
    """
    cases = sorted(_by_case(baseline, candidate), key=_order)
    judged, problems = list[SpeedRatio](), list[str]()
    for name, both in zip(_names([_first(both) for both in cases]), cases, strict=True):
        if SIDES[0] not in both:
            continue
        if reason := _obstacle(name, both, policy):
            problems.append(reason)
        elif pace := _speed_ratio(name, both[SIDES[0]][0], both[SIDES[1]][0], policy.slower):
            judged.append(pace)
    return judged, problems


def _by_case(
    baseline: Sequence[SpeedResult], candidate: Sequence[SpeedResult]
) -> list[dict[str, list[SpeedResult]]]:
    """Return the timed results of each layer and shape, by side."""
    before, after = (
        [result for result in side if result["bench"]["question"] in TIMED] for side in (baseline, candidate)
    )
    both = align_identities(before, after, asks=code_free_speed_identity)
    found: dict[str, dict[str, list[SpeedResult]]] = {}
    for side, results, questions in zip(SIDES, (before, after), both, strict=True):
        for result, question in zip(results, questions, strict=True):
            found.setdefault(canonical(question), {}).setdefault(side, []).append(result)
    return list(found.values())


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
    """Return names of speeds: layer, question and shape.

    Layers of one label are distinguished by the settings in which they differ.
    """
    layers = {canonical(distinguishing_fields(result)): result for result in results}
    unique = unique_labels(
        [one["label"] for one in layers.values()], [distinguishing_fields(one) for one in layers.values()]
    )
    labels = dict(zip(layers, unique, strict=True))
    return [_name(result, labels[canonical(distinguishing_fields(result))]) for result in results]


def _name(result: SpeedResult, label: str) -> str:
    bench = result["bench"]
    peer = f", beside {bench['peer']['name']}" if bench["peer"] else ""
    batch = pluralize(bench["shape"]["batch"], "sequence")
    question = describe_question(bench["question"], bench["shape"]["length"])
    return f"{label} {bench['layer']['form']}, {question}, {batch}, {bench['precision']}{peer}"


def _obstacle(name: str, both: Mapping[str, Sequence[SpeedResult]], policy: Policy) -> str | None:
    """Return a sentence that says why two speeds cannot be compared; None if they can."""
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
    return _changed_machine(name, before, after, policy)


def _changed_machine(name: str, before: SpeedResult, after: SpeedResult, policy: Policy) -> str | None:
    """Return a sentence that names what computed differently on the two sides; None if nothing did."""
    here, there = (
        {"device": machine_of(one), **packages(one, one["bench"]["device"])} for one in (before, after)
    )
    for part, value in here.items():
        may_differ = part != "device" and part in policy.may_differ
        if value != there.get(part) and not may_differ:
            return (
                f"The speed of {name} cannot be compared: {part} is {value} in the baseline and"
                f" {there.get(part)} in the candidate."
            )
    return None


def _speed_ratio(
    name: str, before: SpeedResult, after: SpeedResult, allowed: float | None
) -> SpeedRatio | None:
    """Return the ratio of two speeds, replayed if both were timed so; None if they share no timing."""
    for timing in (REPLAYED, AS_CALLED):
        rates = speed_of(before, OURS, timing), speed_of(after, OURS, timing)
        if rates[0] is not None and rates[1] is not None:
            marks = tuple(
                f"{side}: {', '.join(one['marks'])}"
                for side, one in zip(SIDES, (before, after), strict=True)
                if one["marks"]
            )
            return SpeedRatio(name, timing, rates[0], rates[1], marks, allowed)
    return None
