"""Matching of two runs: results that answer the same question, whatever code answered it."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from linbench.common.hashing import canonical
from linbench.experiments.sizing import TOLERANCE
from linbench.results.comparison import Row, broken_laws, comparisons
from linbench.results.record import DIVERGED, seed_of
from linbench.results.schema import Result
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.schema.cells import CellResult
from linbench.results.scores import accuracy
from linbench.results.sizes import spread

SIDES = ("baseline", "candidate")

ResultT = TypeVar("ResultT", CellResult, SpeedResult)

CodeFreeIdentity = dict[str, Any]
"""An identity without code and device: of a cell its seed and the settings of task, model and protocol."""


def code_free_identity(result: CellResult) -> CodeFreeIdentity:
    """Return the question that a result answers.

    A learning rate that was searched is part of the answer; the seeds of the search are part of the question.
    Sizes that were chosen to make models equally large are still in it, see `sized_alike`.
    """
    cell, search = result["cell"], result["search"]
    task, model, protocol = cell["task"], cell["model"], cell["protocol"]
    searched = {"lr": f"searched on seeds {' '.join(map(str, search['seeds']))}"} if search else {}
    return {
        **cell,
        "schema": 0,
        "backend": "",
        "device": "",
        "task": {**task, "version": 0, "draws": 0, "source": None},
        "model": {
            **model,
            "backbone": {**model["backbone"], "version": 0, "kernel": {}},
            "layers": [{**layer, **_CODELESS} for layer in model["layers"]],
        },
        "protocol": {"version": 0, "settings": {**protocol["settings"], **searched}},
    }


_CODELESS = {"version": 0, "kernel": {}, "source": None}


def jitter_of(result: CellResult) -> float:
    """Return the relative size of the random change of the weights that training began with."""
    settings: Mapping[str, Any] = result["cell"]["protocol"]["settings"]
    return float(settings.get("jitter", 0.0))


def asked_of_twin(result: CellResult) -> str:
    """Return the question that a result and its twins, which differ from it in jitter alone, answer.

    The seed is no part of it.
    """
    asked = code_free_identity(result)
    settings = {name: value for name, value in asked["protocol"]["settings"].items() if name != "jitter"}
    return canonical({**asked, "seed": None, "protocol": {**asked["protocol"], "settings": settings}})


def code_free_speed_identity(result: SpeedResult) -> CodeFreeIdentity:
    """Return the question that the speed of a layer answers: its identity without code and device."""
    bench = result["bench"]
    return {**bench, "schema": 0, "device": "", "processor": {}, "layer": {**bench["layer"], **_CODELESS}}


def sized_alike(one: CellResult, other: CellResult) -> frozenset[str]:
    """Return the settings that may differ between two models because both were given the same size.

    linbench chooses the width of the channel mixer for a number of parameters, and the head dimension for a
    number of recurrent floats. If a layer changes, others are chosen for the same question. No size is chosen
    for a model without recurrent floats.
    """
    former, latter = one["model"], other["model"]
    chosen = {"channel_width": (former["parameters"], latter["parameters"])}
    if former["state"] and latter["state"]:
        chosen["head_dim"] = (former["state"]["recurrent"], latter["state"]["recurrent"])
    return frozenset(
        name for name, sizes in chosen.items() if min(sizes) > 0 and spread(sizes) <= 2 * TOLERANCE
    )


def align_identities(
    before: Sequence[ResultT],
    after: Sequence[ResultT],
    asks: Callable[[ResultT], CodeFreeIdentity],
    chosen: Callable[[ResultT, ResultT], Collection[str]] = lambda *_: (),
) -> tuple[list[CodeFreeIdentity], list[CodeFreeIdentity]]:
    """Return the questions of both sides, the same where both ask the same.

    Where today's code has a setting more or fewer than it had, questions of one label that agree in all other
    settings are the same: as `before` has them, if there is but one.

    Args:
        before: results of one side.
        after: results of the other side.
        asks: returns the question of a result.
        chosen: returns the settings that may differ between two results, as they are no part of the question.
    """
    old, new = [asks(result) for result in before], [asks(result) for result in after]
    exact = {canonical(asked) for asked in new}
    left: dict[tuple[str, int | None], dict[str, tuple[ResultT, CodeFreeIdentity]]] = {}
    for result, asked in zip(before, old, strict=True):
        if canonical(asked) not in exact:
            left.setdefault((result["label"], asked.get("seed")), {})[canonical(asked)] = result, asked
    found = []
    for result, asked in zip(after, new, strict=True):
        candidates = left.get((result["label"], asked.get("seed")), {}).values()
        twins = [other for _, other in candidates if compatible(asked, other)] or [
            other for former, other in candidates if compatible(asked, other, but=chosen(former, result))
        ]
        found.append(twins[0] if len(twins) == 1 else asked)
    return old, found


def compatible(one: Any, other: Any, *, but: Collection[str] = (), in_both: bool = False) -> bool:
    """Return whether two questions are the same in all settings that both have.

    All fields other than settings must be there in both.

    Args:
        one: a question, or a part of it.
        other: the other question, or the same part of it.
        but: names of settings that may differ.
        in_both: whether the parts are settings.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        same = in_both or one.keys() == other.keys()
        names = (one.keys() & other.keys()).difference(but if in_both else ())
        return same and all(
            compatible(one[name], other[name], but=but, in_both=name == "settings") for name in names
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            compatible(*parts, but=but) for parts in zip(one, other, strict=True)
        )
    return bool(one == other)


def accuracies_by_seed(results: Sequence[CellResult]) -> dict[int, float]:
    """Return the accuracies of results by their seeds; those without a number are left out."""
    return {seed_of(result): value for result in results if (value := accuracy(result)) is not None}


def conditions(result: CellResult) -> dict[str, str]:
    """Return what must agree for a difference to come from the code: device, packages and task version.

    Threads and the kind of CPU change the last bits only, and a test over seeds allows for these.
    """
    cell = result["cell"]
    task = cell["task"]
    source = f", source {task['source'][:8]}" if task["source"] else ""
    version = f"version {task['version']}{source}, of draws {task.get('draws', 0)}"
    return {"device": cell["device"], f"task {task['name']}": version, **packages(result, cell["device"])}


def packages(result: Result, device: str) -> dict[str, str]:
    """Return the versions of the packages that compute on a kind of device."""
    found = result["environment"]["packages"]
    told = {"torch": found.get("torch", "unknown").partition("+")[0]}
    return told if device == "cpu" else {**told, "triton": found.get("triton", "unknown")}


@dataclass(frozen=True)
class Match:
    """A row of a table with the results of both sides; one side may be empty."""

    name: str
    baseline: Row
    candidate: Row
    measured: tuple[tuple[CellResult, ...], tuple[CellResult, ...]]
    """The results of each side as they were stored, with their code and device."""

    @property
    def sides(self) -> tuple[tuple[str, Row], tuple[str, Row]]:
        """The name and the row of each side."""
        return (SIDES[0], self.baseline), (SIDES[1], self.candidate)

    @property
    def seeds(self) -> list[int]:
        """The seeds with exactly one accuracy on each side."""
        numbers = [
            Counter(seed_of(result) for result in row.results if accuracy(result) is not None)
            for _, row in self.sides
        ]
        return [seed for seed in numbers[0] if numbers[0][seed] == numbers[1][seed] == 1]

    def accuracies(self, row: Row) -> list[float]:
        """Return the accuracies of `seeds` on one side, in their order."""
        found = accuracies_by_seed(row.results)
        return [found[seed] for seed in self.seeds]

    @property
    def diverged(self) -> tuple[int, int]:
        """The number of `seeds` that diverged on each side."""
        seeds = self.seeds
        before, after = (
            sum(result["status"] == DIVERGED and seed_of(result) in seeds for result in row.results)
            for _, row in self.sides
        )
        return before, after

    @property
    def missing(self) -> Iterator[str]:
        """A sentence for every result that should be there and is not."""
        if not self.candidate.results:
            yield f"{self.name} is missing in the candidate."
            return
        left = [
            str(seed)
            for seed in dict.fromkeys(map(seed_of, self.baseline.results))
            if seed not in map(seed_of, self.candidate.results)
        ]
        if left:
            yield f"{self.name} has no seed {', '.join(left)} in the candidate."
        for side, row in self.sides:
            for seed, count in Counter(map(seed_of, row.results)).items():
                if count > 1:
                    yield (
                        f"{self.name} has {count} results of seed {seed} in the {side}, of different code;"
                        " give folders that hold one run each."
                    )
            for result in row.results:
                if accuracy(result) is None:
                    yield (
                        f"{self.name}, seed {seed_of(result)}: {result['status']} in the {side},"
                        f" {str(result['reason']).rstrip('.')}."
                    )

    @property
    def law_obstacle(self) -> str | None:
        """A sentence that layers on one side break a law, or may; None if none do."""
        sides = [side for side, row in self.sides if broken_laws(row.results)]
        if not sides:
            return None
        return (
            f"{self.name} takes part in no verdict: its layers are not known to keep the laws in the"
            f" {' and the '.join(sides)}."
        )

    def differences(self, may_differ: Sequence[str]) -> list[str]:
        """Return in words what differs between the sides other than code.

        Args:
            may_differ: names of conditions that may differ.
        """
        told = [[conditions(result) for result in side] for side in self.measured]
        found = []
        for name in told[0][0] if all(told) else ():
            here, there = (", ".join(sorted({one.get(name, "none") for one in side})) for side in told)
            if here != there and name not in may_differ:
                found.append(f"{name} is {here} in the baseline and {there} in the candidate")
        return found


def matches(baseline: Sequence[CellResult], candidate: Sequence[CellResult]) -> list[Match]:
    """Return every row of a table that either side has, with the results of both."""
    sides = (baseline, candidate)
    stored: dict[str, tuple[str, CellResult]] = {}
    codeless: list[CellResult] = []
    for name, results, questions in zip(
        SIDES, sides, align_identities(*sides, asks=code_free_identity, chosen=sized_alike), strict=True
    ):
        for result, asked in zip(results, questions, strict=True):
            key = f"{name} {len(stored)}"  # both sides may have a result of one id
            stored[key] = (name, result)
            identity: Any = asked
            codeless.append({**result, "id": key, "cell": identity})
    return [
        _match(f"{comparison.title} {comparison.form}, {row.label}", row, stored)
        for comparison in comparisons(codeless)
        for row in comparison.rows
    ]


def _match(name: str, row: Row, stored: Mapping[str, tuple[str, CellResult]]) -> Match:
    """Divide a row into those of the two sides."""
    halves: dict[str, list[CellResult]] = {side: [] for side in SIDES}
    measured: dict[str, list[CellResult]] = {side: [] for side in SIDES}
    for result in row.results:
        side, original = stored[result["id"]]
        halves[side].append({**result, "id": original["id"]})
        measured[side].append(original)
    before, after = SIDES
    return Match(
        name,
        replace(row, results=tuple(halves[before])),
        replace(row, results=tuple(halves[after])),
        (tuple(measured[before]), tuple(measured[after])),
    )
