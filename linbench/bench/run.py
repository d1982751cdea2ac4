"""Benchmarks from beginning to end: stored results are read, the other cases are measured and stored."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from linbench.bench import generators, kernel, peers, questions, step, sweep
from linbench.bench.case import BenchmarkCase
from linbench.bench.compile import compile_ahead
from linbench.bench.machine import release_memory
from linbench.bench.timing import DevicePeaks, ceilings
from linbench.engine.layer_under_test import UndeclaredError
from linbench.engine.measure import out_of_memory
from linbench.engine.workers import Outcome, outcomes
from linbench.experiments.cell import SCHEMA
from linbench.experiments.loading import describe_error
from linbench.results.environment import environment
from linbench.results.kernel_changes import CHANGES
from linbench.results.schema.benchmarks import BenchmarkResult
from linbench.results.store import DRAW, OPERATION, SPEED, STEP, SWEEP, Store

COMPILE_SECONDS = 900.0
"""Seconds after which the compilation of one case counts as hung."""

FINAL_STATUSES = ("ok", "undeclared")
"""Statuses of cases that need no second attempt."""


class Benchmark(NamedTuple):
    """The functions that run one kind of case.

    Args:
        measure: returns the measured fields of a result; errors of linbench's side propagate.
        precompile: launches everything that a case launches; returns the seconds of linbench's first call,
            or None if they are not known.
    """

    measure: Callable[[Any], dict[str, Any]]
    precompile: Callable[[Any], float | None]


BENCHMARKS = {
    SPEED: Benchmark(questions.measure, questions.precompile),
    OPERATION: Benchmark(kernel.measure, kernel.precompile),
    STEP: Benchmark(step.measure, step.precompile),
    DRAW: Benchmark(generators.measure, generators.precompile),
    SWEEP: Benchmark(sweep.measure, sweep.precompile),
}
"""Benchmarks by kind of result."""


def run(
    cases: Sequence[BenchmarkCase], store: Store, *, again: bool = False, tell: Callable[[str], None]
) -> list[BenchmarkResult]:
    """Return a result for every case, in their order; all cases are of one kind.

    A stored result is read if its status is final, unless `again`. Other cases are measured and stored at
    once. On a GPU all of them are compiled first, side by side, and then measured one by one in a process of
    their own, which is replaced when a case fails.

    A result holds, beside the identity (`bench`):
        `status` (`ok`, `undeclared`, `oom`, `failed`) and `reason`;
        `sides`, linbench's and the peer's: seconds of a call as called and replayed (median, fifths, number
        of calls) or a reason, and bytes of memory; of a layer also `state`, measured and declared;
        `cost`, the least floating-point operations and bytes of a call;
        `ceilings` of the device in this run; `first_call` in seconds; `marks` (`busy`, `throttled`,
        `state_size`); `when` it was measured (UTC); `kernel_changes`, how many of
        `linbench.results.kernel_changes.CHANGES` the code had; `of_peer`, the note of the peer; and the
        `environment`.

    Args:
        tell: receives a line for each step of progress.

    Raises StorageError.
    """
    store.prepare()
    results: dict[int, BenchmarkResult] = {}
    for i, case in enumerate(cases):
        stored = None if again else store.get_benchmark(case.id)
        if stored is not None and stored["status"] in FINAL_STATUSES:
            results[i] = stored
    if results:
        tell(f"{len(results)} of {len(cases)} were measured before; --again measures them anew")
    else:
        tell(f"{len(cases)} to measure")
    missing = [i for i in range(len(cases)) if i not in results]
    if missing:
        store.may_add()
        for which, result in _measure_all([cases[i] for i in missing], tell):
            i = missing[which]
            store.put(result)
            results[i] = result
            tell(f"measured {len(results)}/{len(cases)} {cases[i]}{_outcome_words(result)}")
    return [results[i] for i in range(len(cases))]


def _outcome_words(result: BenchmarkResult) -> str:
    if result["status"] != "ok":
        return f": {result['status']}, {result['reason']}"
    return f" ({', '.join(result['marks'])})" if result["marks"] else ""


def _measure_all(
    cases: Sequence[BenchmarkCase], tell: Callable[[str], None]
) -> Iterable[tuple[int, BenchmarkResult]]:
    """Compile and measure cases; yield the index and the result of each as it ends."""
    if cases[0].in_caller:
        for i, case in enumerate(cases):
            yield i, result_of(case, Outcome(measure(case)), None, None)
        return
    cuda, timeout = cases[0].device != "cpu", cases[0].timeout
    workers = int(cuda)  # a GPU is measured in another process, a CPU in this one
    ((_, peaks),) = outcomes(ceilings, [cases[0].device], workers=workers, seconds=timeout)
    first_calls = _compile_all(cases, tell) if cuda else {}
    for i, outcome in outcomes(
        measure, cases, workers=workers, seconds=timeout, fresh=cases[0].fresh_process
    ):
        case = cases[i]
        if outcome.failure and case.peer is not None and cuda:  # perhaps the peer broke the process
            ((_, alone),) = outcomes(measure, [case.without_peer], workers=1, seconds=timeout)
            if alone.value is not None:
                alone.value["sides"][case.peer.name] = {"reason": outcome.failure}
                outcome = alone
        yield i, result_of(case, outcome, peaks.value, first_calls.get(i))


def _compile_all(cases: Sequence[BenchmarkCase], tell: Callable[[str], None]) -> dict[int, float | None]:
    """Compile cases, those with the same kernels once; return seconds of first calls by index of the case."""
    by_key: dict[str, int] = {}
    for i, case in enumerate(cases):
        if case.compile_key == case.id or case.compile_key not in by_key:
            by_key[case.compile_key] = i
    chosen = sorted(by_key.values())
    seconds = compile_ahead(precompile, [cases[i] for i in chosen], seconds=COMPILE_SECONDS, tell=tell)
    return {chosen[which]: first_call for which, first_call in seconds.items()}


def precompile(case: BenchmarkCase) -> float | None:
    """Compile everything that a case launches; return the seconds of the first call, if they are known."""
    return BENCHMARKS[case.kind].precompile(case)


def measure(case: BenchmarkCase) -> dict[str, Any]:
    """Measure a case, and return all fields of its result that measurement finds.

    Errors become the status and the reason.
    """
    try:
        fields = empty_fields() | BENCHMARKS[case.kind].measure(case)
    except UndeclaredError as undeclared:
        fields = {**empty_fields(), "status": "undeclared", "reason": str(undeclared)}
    except Exception as error:  # linbench's fault or a user's: recorded with its place; other cases go on
        oom = out_of_memory(error)
        fields = {
            **empty_fields(),
            "status": "oom" if oom else "failed",
            "reason": str(error).splitlines()[0] if oom else describe_error(error),
        }
    release_memory(case.device)  # the next case needs it
    return {**fields, "environment": environment(case.device)}


def empty_fields() -> dict[str, Any]:
    """Return the measured fields of a result before anything is measured."""
    return {
        "status": "ok",
        "reason": None,
        "sides": {},
        "state": None,
        "cost": None,
        "first_call": None,
        "marks": [],
    }


def result_of(
    case: BenchmarkCase, outcome: Outcome, peaks: DevicePeaks | None, first_call: float | None
) -> BenchmarkResult:
    """Return the result that is stored.

    Args:
        outcome: what `measure` returned, or why its process failed.
        peaks: peak rates of the device in this run.
        first_call: seconds of the first call, if it was made when everything was compiled.
    """
    fields: dict[str, Any] = outcome.value or {
        **empty_fields(),
        "status": "failed",
        "reason": outcome.failure,
        "environment": environment(case.device),
    }
    result: Any = {  # `misfit` checks it against the type of its kind when it is stored
        "schema": SCHEMA,
        "kind": case.kind,
        "id": case.id,
        "label": case.label,
        "bench": case.identity,
        "kernel_changes": len(CHANGES),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "of_peer": None if case.peer is None else peers.note_of(case.peer.name),
        **fields,
        "first_call": fields["first_call"] if first_call is None else first_call,
        "ceilings": None if peaks is None else peaks._asdict(),
    }
    typed: BenchmarkResult = result
    return typed
