"""Stored speeds of layers as series over lengths, grouped into what one table may hold."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from linbench.common.files import file_name
from linbench.common.text import pluralize
from linbench.experiments.labels import unique_labels
from linbench.results.kernel_changes import newest_versions, older_reason, outdated_reason
from linbench.results.roofline import growth, timing_of
from linbench.results.schema.benchmarks import BenchmarkResult, SpeedResult, Timing
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED

BenchmarkT = TypeVar("BenchmarkT", bound=BenchmarkResult)


class Rate(NamedTuple):
    """Tokens per second.

    Attributes:
        median: the rate by the median of the calls' seconds.
        low: the rate that a fifth of the calls stayed below.
        high: the rate that a fifth of the calls exceeded.
    """

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Half of the distance between low and high, over the median."""
        return (self.high - self.low) / 2 / self.median


@dataclass(frozen=True)
class Series:
    """The results of one side of a layer, linbench's or a peer's, by length."""

    label: str
    side: str
    results: Mapping[int, SpeedResult]
    separate_runs: frozenset[int] = frozenset()
    """The lengths at which linbench's side, which a peer stands beside, is taken from another run."""
    newest: Mapping[str, int] = field(default_factory=dict)
    """The newest versions of kernels among the results that it stands beside."""

    @property
    def name(self) -> str:
        """The name shown to readers."""
        return self.label if self.side == OURS else f"{self.label}, {self.side}"

    @property
    def mixer(self) -> str:
        """The registered name of the layer."""
        return self.sample["bench"]["layer"]["mixer"]

    @property
    def sample(self) -> SpeedResult:
        """One of the results, for what all have in common."""
        return next(iter(self.results.values()))

    def rate(self, length: int, timing: str) -> Rate | None:
        """Return the rate at a length; None if it was not timed that way, or is outdated."""
        if length not in self.results or self.outdated(length):
            return None
        return speed_of(self.results[length], self.side, timing)

    def outdated(self, length: int) -> str | None:
        """Return the reason why the result at a length may not stand beside others; None if it may.

        See `linbench.results.kernel_changes`. A peer does not run linbench's kernels.
        """
        if self.side != OURS:
            return None
        result = self.results[length]
        return older_reason(result, self.newest) or outdated_reason(result)

    def rates(self, timing: str) -> dict[int, Rate]:
        """Return the rates by length, without lengths that have none."""
        return {length: rate for length in self.results if (rate := self.rate(length, timing)) is not None}

    def growth(self, timing: str) -> float | None:
        """Return the `growth` of the time of a sequence, or of a token if it was decoded."""
        decoding = self.sample["bench"]["question"] == "decode"
        return growth(
            {length: (1 if decoding else length) / rate.median for length, rate in self.rates(timing).items()}
        )

    def numbers(self, pick: Callable[[SpeedResult], float | None]) -> dict[int, float]:
        """Return a number of each result by length, without results that lack it or are `outdated`."""
        numbers = {at: pick(result) for at, result in self.results.items() if not self.outdated(at)}
        return {length: float(number) for length, number in numbers.items() if number is not None}


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
        """The lengths of all series, the shortest first."""
        return sorted({length for series in self.series for length in series.results})

    @property
    def results(self) -> list[SpeedResult]:
        """The results of all series, each once."""
        results = [result for series in self.series for result in series.results.values()]
        return list({result["id"]: result for result in results}.values())

    @property
    def timings(self) -> list[str]:
        """The timings that any series has, the replayed one first."""
        return [
            timing for timing in (REPLAYED, AS_CALLED) if any(series.rates(timing) for series in self.series)
        ]

    @property
    def about(self) -> str:
        """The size, precision, load, form and device, in words."""
        return f"d_model {self.d_model}, {self.precision}, {self.load}, {self.form} form, {self.device}"

    def slug(self, of: str) -> str:
        """Return the name of files that show a quantity of these speeds."""
        words = (
            f"speed {self.question} {of} d{self.d_model} {self.precision} {self.load} {self.form}"
            f" {self.device}"
        )
        return file_name(words.replace(",", "").replace("_", " "))


def speeds(results: Iterable[SpeedResult], *, form: str = "auto") -> list[Speeds]:
    """Group results of layers into speeds that may be compared.

    Args:
        form: "auto" for results of kernels that chose their form themselves, "named" for those of forms that
            were named.
    """
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


def latest(results: Iterable[BenchmarkT]) -> BenchmarkT:
    """Return the result that stands for linbench's side among several of one case, beside peers or alone.

    It is one by the latest code. Of several by that code, one beside a peer is preferred, since a ratio is
    best taken within a run.

    A result without a date, as older versions wrote them, counts as older than all with one. Of two without a
    date and by different code, the one without a peer counts as later: linbench's side is measured beside a
    peer too, so it was measured alone only to renew it.
    """
    every = list(results)
    newest = max(every, key=lambda one: (one.get("when", ""), one["bench"]["peer"] is None))
    return max(
        (one for one in every if _code(one) == _code(newest)),
        key=lambda one: (one["bench"]["peer"] is not None, one.get("when", "")),
    )


def _code(result: BenchmarkResult) -> tuple[Any, ...]:
    """Return a key of the code that produced a result; a tree with changes is a code of its own."""
    found = result["environment"]
    return found["commit"], found["packages"], result["id"] if found["dirty"] else None


def tokens(result: SpeedResult) -> int:
    """Return the number of tokens that one call takes in."""
    shape = result["bench"]["shape"]
    return shape["batch"] * (1 if result["bench"]["question"] == "decode" else shape["length"])


def speed_of(result: SpeedResult, side: str, timing: str) -> Rate | None:
    """Return the rate of one side of a layer; None if it was not timed that way."""
    return rate_of(timing_of(result, side, timing), tokens(result))


def rate_of(seconds: Timing | None, count: float) -> Rate | None:
    """Return the rate of a call that takes in `count` tokens; None if it was not timed."""
    if seconds is None:
        return None
    return Rate(count / seconds["median"], count / seconds["high"], count / seconds["low"])


def describe_question(question: str, length: int) -> str:
    """Return a question in words, such as `training at T 256`."""
    return {
        "train": f"training at T {length:,}",
        "prefill": f"prompts of {length:,} tokens",
        "decode": f"decoding after {length:,} tokens",
    }[question]


def machine_of(result: BenchmarkResult) -> str:
    """Return the device of a result in words; of a CPU also the number of threads."""
    environment = result["environment"]
    name = environment["device"]["name"]
    if result["bench"]["device"] != "cpu":
        return name
    return f"{name}, {pluralize(environment['threads'], 'thread')}"


def distinguishing_fields(result: SpeedResult) -> dict[str, Any]:
    """Return the settings in which layers can differ, the form of their kernels among them."""
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
        machine_of(result),
    )


def _by_load(question: str, members: Sequence[SpeedResult]) -> dict[str, list[SpeedResult]]:
    """Group results by load: one sequence, a number of sequences, or a number of tokens in a batch.

    A single sequence that fills a batch of that many tokens belongs to both.
    """
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
    """Return a series for linbench's side of every layer, and for each of its peers.

    Layers of one label are distinguished by the settings in which they differ. At each length the `latest`
    result is taken.
    """
    layers: dict[str, list[SpeedResult]] = {}
    for result in members:
        layer = {**result["bench"]["layer"], "backend": result["bench"]["backend"]}
        layers.setdefault(str(sorted(layer.items())), []).append(result)
    firsts = [group[0] for group in layers.values()]
    newest = newest_versions(members)
    labels = unique_labels(
        [result["label"] for result in firsts], [distinguishing_fields(result) for result in firsts]
    )
    found = []
    for label, group in zip(labels, layers.values(), strict=True):
        ours = _by_length(group)
        found.append(Series(label, OURS, ours, newest=newest))
        peers = [side for result in group for side in result["sides"] if side != OURS]
        for peer in dict.fromkeys(peers):
            theirs = _by_length(result for result in group if peer in result["sides"])
            apart = frozenset(at for at, result in theirs.items() if result["id"] != ours[at]["id"])
            found.append(Series(label, peer, theirs, apart))
    return tuple(sorted(found, key=lambda one: one.name))


def _by_length(members: Iterable[SpeedResult]) -> dict[int, SpeedResult]:
    at: dict[int, list[SpeedResult]] = {}
    for result in members:
        at.setdefault(result["bench"]["shape"]["length"], []).append(result)
    return {length: latest(at[length]) for length in sorted(at)}


def peak_bytes(result: SpeedResult) -> int | None:
    """Return the peak of memory of linbench's side; None if it was not measured."""
    return result["sides"].get(OURS, {}).get("peak_bytes")


def state_bytes(result: SpeedResult) -> int | None:
    """Return the bytes of a sequence's state; None if it was not measured."""
    state = result["state"]
    return None if state is None else state["bytes"]
