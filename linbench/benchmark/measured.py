"""Cases of layers from beginning to end: what is stored already is read, the rest measured and kept, a file for each."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from linbench.benchmark import memory
from linbench.benchmark.compiling import compiled_ahead
from linbench.benchmark.decode import token
from linbench.benchmark.layers import Case, Make, compiled, computing, timed, training
from linbench.benchmark.machine import give_back, marks, moment
from linbench.benchmark.prefill import prompt
from linbench.benchmark.timing import Ceilings, ceilings
from linbench.cell import SCHEMA
from linbench.check.subject import UndeclaredError
from linbench.environment import environment
from linbench.loading import theirs
from linbench.measure import out_of_memory
from linbench.store import SPEED, Result, Store
from linbench.workers import Outcome, outcomes

COMPILE_SECONDS, SECONDS = 900.0, 180.0
"""A case that takes longer hangs."""

ENDED_WELL = ("ok", "undeclared")
"""Statuses that stand; a case with another is tried again when it is next asked for."""

CALLS: dict[str, Make] = {"train": training, "prefill": prompt, "decode": token, "memory": training}


def run(cases: Sequence[Case], store: Store, *, again: bool = False, tell: Callable[[str], None]) -> list[Result]:
    """A result for every case, in their order: the stored one, unless `again` or it did not end well; else measured now, and stored at once.

    On a GPU everything is compiled first, side by side; then cases are measured one by one in a process of their own, which is replaced when one fails.

    A result holds, beside the identity (`bench`): status (`ok`, `undeclared`, `oom`, `failed`) with a reason; `sides`, ours and the peer's, with the seconds of
    a call as called and replayed (median, fifths, how many) or a reason, and bytes of memory; `state` by its tensors and as declared; `cost`: what a call
    takes of floating-point operations and bytes, at the least; `ceilings` of the device in this run; seconds of the first call; marks (`busy`,
    `throttled`, `state_size`); when that was (UTC); and the environment.

    Raises StorageError.
    """
    store.prepare()
    found: dict[int, Result] = {}
    for place, case in enumerate(cases):
        stored = None if again else store.get(case.id)
        if stored is not None and stored["status"] in ENDED_WELL:
            found[place] = stored
    tell(f"{len(found)} of {len(cases)} were measured before" if found else f"{len(cases)} to measure")
    missing = [place for place in range(len(cases)) if place not in found]
    if missing:
        for place, result in _measured([cases[place] for place in missing], tell):
            store.put(result)
            found[missing[place]] = result
            words = f": {result['status']}, {result['reason']}" if result["status"] != "ok" else f" ({', '.join(result['marks'])})" if result["marks"] else ""
            tell(f"measured {len(found)}/{len(cases)} {cases[missing[place]]}{words}")
    return [found[place] for place in range(len(cases))]


def _measured(cases: Sequence[Case], tell: Callable[[str], None]) -> Iterable[tuple[int, Result]]:
    device = cases[0].device
    cuda = device != "cpu"
    ((_, peak),) = outcomes(ceilings, [device], workers=int(cuda), seconds=SECONDS)
    firsts: dict[int, float | None] = {}
    if cuda:
        asked = {case.id for case in cases}
        apart = [place for place, case in enumerate(cases) if case.question != "memory" or replace(case, question="train").id not in asked]  # the same kernels
        seconds = compiled_ahead(compile_all, [cases[place] for place in apart], seconds=COMPILE_SECONDS, tell=tell)
        firsts = {apart[which]: first for which, first in seconds.items()}
    for place, outcome in outcomes(measure, cases, workers=int(cuda), seconds=SECONDS):
        case = cases[place]
        if outcome.failure and case.peer is not None and cuda:  # it may be the peer that broke the process
            ((_, alone),) = outcomes(measure, [replace(case, peer=None)], workers=1, seconds=SECONDS)
            if alone.value is not None:
                alone.value["sides"][case.peer[0]] = {"reason": outcome.failure}
                outcome = alone
        yield place, result_of(case, outcome, peak.value, firsts.get(place))


def compile_all(case: Case) -> float:
    """Everything that the case launches: many at once, before anything is timed. Seconds of our first call."""
    return compiled(case, CALLS[case.question])


def measure(case: Case) -> dict[str, Any]:
    """All of a result that is found by doing it. What goes wrong becomes its status."""
    found = _nothing()
    try:
        with computing(case):
            if case.question == "memory":
                found |= memory.measure(case)
            else:
                began = moment()
                found |= timed(case, CALLS[case.question])
                found["marks"] = marks(began, case.device)
    except UndeclaredError as undeclared:
        found = {**_nothing(), "status": "undeclared", "reason": str(undeclared)}
    except Exception as error:  # a layer's own fault, ours or a user's: recorded with its place, and the rest goes on
        oom = out_of_memory(error)
        found = {**_nothing(), "status": "oom" if oom else "failed", "reason": str(error).splitlines()[0] if oom else theirs(error)}
    give_back(case.device)  # the next case needs it
    return {**found, "environment": environment(case.device)}


def _nothing() -> dict[str, Any]:
    """What is found before anything is."""
    return {"status": "ok", "reason": None, "sides": {}, "state": None, "cost": None, "first_call": None, "marks": []}


def result_of(case: Case, outcome: Outcome, peak: Ceilings | None, first: float | None) -> Result:
    """What is stored.

    Args:
        first: seconds of the first call, if it was made when everything was compiled.
    """
    found: dict[str, Any] = outcome.value or {**_nothing(), "status": "failed", "reason": outcome.failure, "environment": environment(case.device)}
    return {
        "schema": SCHEMA,
        "kind": SPEED,
        "id": case.id,
        "label": case.label,
        "bench": case.identity,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **found,
        "first_call": found["first_call"] if first is None else first,
        "ceilings": None if peak is None else peak._asdict(),
    }
