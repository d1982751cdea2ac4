"""Helpers for stored results: statuses, marks, and the fields that many readers need."""

from collections.abc import Iterable
from typing import Final

from typing_extensions import TypedDict, TypeIs

from linbench.common.hashing import digest
from linbench.common.laws import Law
from linbench.results.schema import Result, ResultsByKind
from linbench.results.schema.benchmarks import (
    BenchmarkIdentity,
    BenchmarkResult,
    SpeedResult,
    SweepResult,
    TimingResult,
)
from linbench.results.schema.cells import CellIdentity, CellResult
from linbench.results.schema.fields import CELL, DRAW, OPERATION, PROBE, SPEED, STEP, SWEEP
from linbench.results.schema.pretrained import PretrainedIdentity, PretrainedResult

DIVERGED = "diverged"
"""The status of a run whose loss was not finite; it counts as chance."""

FINAL = ("ok", DIVERGED)
"""The statuses that say something about the model. A cell with another status is run again on request, or if
its status came from outside."""

_OUTSIDE = (
    "its process died with SIGKILL",
    "its process died with SIGTERM",
    "its worker was lost",
    "its worker lost it",
    "3 times over: ",
)
"""The first words of the reasons of results that were lost with their worker, in files without `outside`."""

UNDERTRAINED = "undertrained"
"""The mark of a result of which more training is known to be missing (`linbench.results.undertrained`)."""

EDGE = "lr_edge"
"""The mark of a result whose learning rate is the lowest or highest of all that were tried."""

UNTRIED = "lr_untried"
"""The mark of a result if a run at a neighbouring learning rate failed."""

UNPROBED = "unprobed"
"""The mark of a result whose layer is not shipped and could not be probed for the laws of layers."""

UNLAWFUL = (*(law.value for law in Law), UNPROBED)
"""The marks of results whose layers break a law, or may; their scores say nothing."""

NO_VERDICT = (UNDERTRAINED, EDGE, UNTRIED, *UNLAWFUL)
"""The marks of results that take part in no verdict."""


def from_outside(result: CellResult) -> bool:
    """Return whether something outside a cell ended it, such as the kill of its worker.

    Such a cell is run again whenever it is asked for.
    """
    if result["status"] in FINAL:
        return False
    stated = result.get("outside")
    return stated if stated is not None else str(result.get("reason")).startswith(_OUTSIDE)


def is_cell(result: Result) -> TypeIs[CellResult]:
    """Return whether a result is that of a trained cell, and not a benchmark's."""
    return result.get("kind", CELL) == CELL


def is_pretrained(result: Result) -> TypeIs[PretrainedResult]:
    """Return whether a result is that of a language model that was trained elsewhere."""
    return result.get("kind") == PROBE


def is_benchmark(result: Result) -> TypeIs[BenchmarkResult]:
    """Return whether a result is that of a benchmark."""
    return not is_cell(result) and not is_pretrained(result)


def identity_of(result: Result) -> CellIdentity | BenchmarkIdentity | PretrainedIdentity:
    """Return the identity of what was measured: the cell, the benchmark's case, or what a model was asked."""
    if is_pretrained(result):
        return result["probe"]
    return result["cell"] if is_cell(result) else result["bench"]


def no_results() -> ResultsByKind:
    """Return an empty list for each kind of result."""
    return {CELL: [], SPEED: [], OPERATION: [], STEP: [], DRAW: [], SWEEP: [], PROBE: []}


def add_result(results: ResultsByKind, result: Result) -> None:
    """Append a result to the list of its kind."""
    if is_cell(result):
        results[CELL].append(result)
    elif is_pretrained(result):
        results[PROBE].append(result)
    elif result["kind"] == SPEED:
        results[SPEED].append(result)
    elif result["kind"] == OPERATION:
        results[OPERATION].append(result)
    elif result["kind"] == STEP:
        results[STEP].append(result)
    elif result["kind"] == DRAW:
        results[DRAW].append(result)
    else:
        results[SWEEP].append(result)


def speed_results(results: Iterable[BenchmarkResult]) -> list[SpeedResult]:
    """Return the results of layers among those of benchmarks."""
    return [result for result in results if result["kind"] == SPEED]


def timing_results(results: Iterable[BenchmarkResult]) -> list[TimingResult]:
    """Return the results of kernels, training steps and generators among those of benchmarks."""
    return [result for result in results if result["kind"] != SPEED and result["kind"] != SWEEP]


def sweep_results(results: Iterable[BenchmarkResult]) -> list[SweepResult]:
    """Return the results of whole suites among those of benchmarks."""
    return [result for result in results if result["kind"] == SWEEP]


def benchmark_results(results: ResultsByKind) -> list[TimingResult]:
    """Return the results of all benchmarks other than those of layers and of whole suites."""
    return [*results[OPERATION], *results[STEP], *results[DRAW]]


def fingerprint(results: Iterable[Result]) -> str:
    """Return a hash of results, each counted once. Tables and figures carry it."""
    return digest(sorted(digest(result) for result in {one["id"]: one for one in results}.values()))


def learning_rate_of(result: CellResult) -> float:
    """Return the learning rate of a cell."""
    return float(result["cell"]["protocol"]["settings"]["lr"])


def seed_of(result: CellResult) -> int:
    """Return the seed of a cell."""
    return int(result["cell"]["seed"])


def doublings_of(result: CellResult) -> int:
    """Return how many times the budget of a cell was doubled: the number of its rung."""
    return result["cell"]["protocol"]["settings"].get("doublings", 0)


STATE: Final = ("recurrent", "cache", "convolution", "shift")
"""The parts of a state."""


class ModelSize(TypedDict):
    """The size of a model: parameters, state in floats with its parts, and operations for each token.

    A field is None where the model does not declare it or was never built.
    """

    parameters: int | None
    state_total: int | None
    state_recurrent: int | None
    state_cache: int | None
    state_convolution: int | None
    state_shift: int | None
    flops_per_token: float | None


def model_size_of(result: CellResult) -> ModelSize:
    """Return the size of the model that a cell trained."""
    model = result["model"]
    state = model.get("state")
    return {
        "parameters": model.get("parameters"),
        "state_total": state["total"] if state else None,
        "state_recurrent": state["recurrent"] if state else None,
        "state_cache": state["cache"] if state else None,
        "state_convolution": state["convolution"] if state else None,
        "state_shift": state["shift"] if state else None,
        "flops_per_token": model.get("flops_per_token"),
    }
