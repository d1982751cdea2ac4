"""Stored speeds of layers as series over lengths: which of them may stand in one table."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from linbench.common.files import file_name
from linbench.experiments.labels import unique_labels
from linbench.results.kernel_changes import outdated
from linbench.results.roofline import growth, timing_of
from linbench.results.schema.benchmarks import BenchmarkResult, SpeedResult, Timing
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED

BenchmarkT = TypeVar("BenchmarkT", bound=BenchmarkResult)


class Rate(NamedTuple):
    """Tokens per second: by the median, and by those seconds that a fifth of the calls exceeded (low) and
    stayed under (high)."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Half of what lies between, over the median."""
        return (self.high - self.low) / 2 / self.median


@dataclass(frozen=True)
class Series:
    """One side of one layer, ours or a peer's: its results by length."""

    label: str
    side: str
    results: Mapping[int, SpeedResult]
    apart: frozenset[int] = frozenset()
    """Of a peer: at which lengths ours beside it was measured in another run."""

    @property
    def name(self) -> str:
        """For readers."""
        return self.label if self.side == OURS else f"{self.label}, {self.side}"

    @property
    def mixer(self) -> str:
        """The layer's registered name."""
        return str(self.any["bench"]["layer"]["mixer"])

    @property
    def any(self) -> SpeedResult:
        """One of its results."""
        return next(iter(self.results.values()))

    def rate(self, length: int, timing: str) -> Rate | None:
        """At a length; None where nothing was timed that way, or by a kernel that has changed since."""
        return (
            speed_of(self.results[length], self.side, timing)
            if length in self.results and not self.outdated(length)
            else None
        )

    def outdated(self, length: int) -> str | None:
        """Why what was measured there may not stand beside others, as `kernel_changes` says; None: it may. A
        peer has no kernel of ours."""
        return outdated(self.results[length]) if self.side == OURS else None

    def rates(self, timing: str) -> dict[int, Rate]:
        """By length, where there are any."""
        return {length: rate for length in self.results if (rate := self.rate(length, timing)) is not None}

    def growth(self, timing: str) -> float | None:
        """`growth` of the time of one sequence; of decoding, of the time of one token."""
        decoding = self.any["bench"]["question"] == "decode"
        return growth(
            {length: (1 if decoding else length) / rate.median for length, rate in self.rates(timing).items()}
        )

    def numbers(self, pick: tuple[str, ...]) -> dict[int, float]:
        """By length, what lies there in the results that have it and are not `outdated`."""
        found = {
            length: _inside(result, pick)
            for length, result in self.results.items()
            if not self.outdated(length)
        }
        return {length: value for length, value in found.items() if value is not None}


@dataclass(frozen=True)
class Speeds:
    """Series that may stand side by side: one question, form, width, precision, kind of device and load."""

    question: str
    form: str
    d_model: int
    precision: str
    device: str
    load: str
    series: tuple[Series, ...]

    @property
    def lengths(self) -> list[int]:
        """All that occur, the shortest first."""
        return sorted({length for series in self.series for length in series.results})

    @property
    def results(self) -> list[SpeedResult]:
        """All of them, each once."""
        return list(
            {result["id"]: result for series in self.series for result in series.results.values()}.values()
        )

    @property
    def timings(self) -> list[str]:
        """In which ways anything was timed, the device alone first."""
        return [
            timing for timing in (REPLAYED, AS_CALLED) if any(series.rates(timing) for series in self.series)
        ]

    @property
    def about(self) -> str:
        """Where and at what size."""
        return f"d_model {self.d_model}, {self.precision}, {self.load}, {self.form} form, {self.device}"

    def slug(self, of: str) -> str:
        """A name for files of what is shown of them."""
        words = (
            f"speed {self.question} {of} d{self.d_model} {self.precision} {self.load} {self.form}"
            f" {self.device}"
        )
        return file_name(words.replace(",", "").replace("_", " "))


def speeds(results: Iterable[SpeedResult], *, form: str = "auto") -> list[Speeds]:
    """Results of layers grouped into what may be compared, of kernels that chose their form by themselves, or
    of all forms by name with `form` "named"."""
    groups: dict[tuple[Any, ...], list[SpeedResult]] = {}
    for result in results:
        if (result["bench"]["backend"] == "auto") == (form == "auto"):
            groups.setdefault(_alike(result), []).append(result)
    found = []
    for (question, of_form, width, precision, device), members in groups.items():
        for load, loaded in _by_load(question, members).items():
            found.append(Speeds(question, of_form, width, precision, device, load, _series(loaded)))
    return sorted(
        found,
        key=lambda one: (
            _ORDER.index(one.question),
            one.form,
            one.d_model,
            one.precision,
            one.device,
            len(one.load),
            one.load,
        ),
    )


_ORDER = ("train", "prefill", "decode", "memory")


def current(results: Iterable[BenchmarkT]) -> BenchmarkT:
    """Of what was measured of one layer at one shape, beside peers or alone, that which stands for our side:
    by the latest code, and of what that measured beside a peer before alone, as a ratio is best of one run.

    A result that does not say when it was measured, as none did once, is older than those that do. Of two
    such by different code the one without a peer is
    later: beside a peer our side is measured as well, so that who has that asks for ours alone only to have
        it anew.
    """
    every = list(results)
    latest = max(every, key=lambda one: (one.get("when", ""), one["bench"]["peer"] is None))
    return max(
        (one for one in every if _code(one) == _code(latest)),
        key=lambda one: (one["bench"]["peer"] is not None, one.get("when", "")),
    )


def _code(result: BenchmarkResult) -> tuple[Any, ...]:
    """By which it was measured; of changes that were not committed nobody knows whether they are the same."""
    found = result["environment"]
    return found["commit"], found["packages"], result["id"] if found["dirty"] else None


def tokens(result: SpeedResult) -> int:
    """That one call takes in."""
    shape = result["bench"]["shape"]
    return int(shape["batch"] * (1 if result["bench"]["question"] == "decode" else shape["length"]))


def speed_of(result: SpeedResult, side: str, timing: str) -> Rate | None:
    """Return the rate of one side of a layer; None if it was not timed that way."""
    return rate_of(timing_of(result, side, timing), tokens(result))


def rate_of(seconds: Timing | None, count: float) -> Rate | None:
    """So many in each of these seconds, per second; None where nothing was timed."""
    return (
        None
        if seconds is None
        else Rate(count / seconds["median"], count / seconds["high"], count / seconds["low"])
    )


def asked(question: str, length: int) -> str:
    """What was timed, in words: `training at T 256`."""
    return {
        "train": f"training at T {length:,}",
        "prefill": f"prompts of {length:,} tokens",
        "decode": f"decoding after {length:,} tokens",
    }[question]


def machine(result: BenchmarkResult) -> str:
    """What it was measured on."""
    found = result["environment"]
    name = str(found["device"]["name"])
    return (
        name
        if result["bench"]["device"] != "cpu"
        else f"{name}, {found['threads']} thread{'s' * (found['threads'] > 1)}"
    )


def told_apart_by(result: SpeedResult) -> dict[str, Any]:
    """What one layer can differ in from another."""
    layer = result["bench"]["layer"]
    flat = {**layer, **layer["settings"], "form of kernels": result["bench"]["backend"]}
    return {name: value for name, value in flat.items() if name != "settings"}


def _alike(result: SpeedResult) -> tuple[Any, ...]:
    bench = result["bench"]
    return (
        bench["question"],
        bench["layer"]["form"],
        bench["layer"]["d_model"],
        bench["precision"],
        machine(result),
    )


def _by_load(question: str, members: Sequence[SpeedResult]) -> dict[str, list[SpeedResult]]:
    """A sequence alone, so many at once, or so many tokens in batches that hold as many sequences as that
    makes; a sequence that fills such a batch alone belongs to both."""
    found: dict[str, list[SpeedResult]] = {}
    filled = {_rounded(result) for result in members if result["bench"]["shape"]["batch"] > 1}
    for result in members:
        batch = result["bench"]["shape"]["batch"]
        if question in ("prefill", "decode") and batch == 1:
            found.setdefault("one sequence", []).append(result)
        if question == "decode" and batch > 1:
            found.setdefault(f"{batch} sequences", []).append(result)
        elif question in ("train", "memory") or (question == "prefill" and _rounded(result) in filled):
            found.setdefault(f"{_rounded(result):,} tokens a batch", []).append(result)
    return found


def _rounded(result: SpeedResult) -> int:
    shape = result["bench"]["shape"]
    return 1 << round(math.log2(shape["batch"] * shape["length"]))


def _series(members: Sequence[SpeedResult]) -> tuple[Series, ...]:
    """By label, told apart by settings where these differ; of ours what is `current`, of a peer what was
    measured last."""
    layers: dict[str, list[SpeedResult]] = {}
    for result in members:
        layer = {**result["bench"]["layer"], "backend": result["bench"]["backend"]}
        layers.setdefault(str(sorted(layer.items())), []).append(result)
    firsts = [group[0] for group in layers.values()]
    labels = unique_labels(
        [result["label"] for result in firsts], [told_apart_by(result) for result in firsts]
    )
    found = []
    for label, group in zip(labels, layers.values(), strict=True):
        ours = _by_length(group)
        found.append(Series(label, OURS, ours))
        for side in dict.fromkeys(side for result in group for side in result["sides"] if side != OURS):
            theirs = _by_length(result for result in group if side in result["sides"])
            found.append(
                Series(
                    label,
                    side,
                    theirs,
                    frozenset(at for at, result in theirs.items() if result["id"] != ours[at]["id"]),
                )
            )
    return tuple(sorted(found, key=lambda one: one.name))


def _by_length(members: Iterable[SpeedResult]) -> dict[int, SpeedResult]:
    at: dict[int, list[SpeedResult]] = {}
    for result in members:
        at.setdefault(result["bench"]["shape"]["length"], []).append(result)
    return {length: current(at[length]) for length in sorted(at)}


def _inside(value: Any, path: tuple[str, ...]) -> float | None:
    for name in path:
        value = None if value is None else value.get(name)
    return None if value is None else float(value)
