"""What is asked from beginning to end: what is stored already is read, the rest measured and kept, a file for
each."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from linbench.bench import generators as data
from linbench.bench import kernel, peers, questions
from linbench.bench import step as train
from linbench.bench.case import Asked
from linbench.bench.compile import compiled_ahead
from linbench.bench.machine import give_back
from linbench.bench.timing import Ceilings, ceilings
from linbench.engine.layer_under_test import UndeclaredError
from linbench.engine.measure import out_of_memory
from linbench.engine.workers import Outcome, outcomes
from linbench.experiments.cell import SCHEMA
from linbench.experiments.loading import theirs
from linbench.results.environment import environment
from linbench.results.kernel_changes import CHANGES
from linbench.results.record import Result
from linbench.results.store import DRAW, OPERATION, SPEED, STEP, Store

COMPILE_SECONDS = 900.0
"""What takes longer hangs."""

ENDED_WELL = ("ok", "undeclared")
"""Statuses that stand; a case with another is tried again when it is next asked for."""


class Way(NamedTuple):
    """Of one kind. find: all of a result that is found by doing it; it raises what our side raises.
    compile_all: launches everything that it will; seconds of our first call where these are known."""

    find: Callable[[Any], dict[str, Any]]
    compile_all: Callable[[Any], float | None]


WAYS = {
    SPEED: Way(questions.find, questions.compile_all),
    OPERATION: Way(kernel.find, kernel.compile_all),
    STEP: Way(train.find, train.compile_all),
    DRAW: Way(data.find, data.compile_all),
}


def run(
    cases: Sequence[Asked], store: Store, *, again: bool = False, tell: Callable[[str], None]
) -> list[Result]:
    """A result for every case, all of one kind, in their order: the stored one, unless `again` or it did not
    end well; else measured now, and stored at once.

    On a GPU everything is compiled first, side by side; then cases are measured one by one in a process of
    their own, which is replaced when one fails.

    A result holds, beside the identity (`bench`): status (`ok`, `undeclared`, `oom`, `failed`) with a reason;
    `sides`, ours and the peer's, with the seconds of a call as called and replayed (median, fifths, how many)
    or a reason, and bytes of memory; of a layer `state` by its tensors and as declared; `cost`: what a call
    takes of floating-point operations and bytes, at the least; `ceilings` of the device in this run; seconds
    of the first call; marks (`busy`, `throttled`, `state_size`); when that was (UTC), and how many of
    `linbench.results.kernel_changes.CHANGES` the code had; what belongs beside every number of the peer
    (`of_peer`); and the environment.

    Raises StorageError.
    """
    store.prepare()
    found: dict[int, Result] = {}
    for place, case in enumerate(cases):
        stored = None if again else store.get(case.id)
        if stored is not None and stored["status"] in ENDED_WELL:
            found[place] = stored
    tell(
        f"{len(found)} of {len(cases)} were measured before; --again measures them anew"
        if found
        else f"{len(cases)} to measure"
    )
    missing = [place for place in range(len(cases)) if place not in found]
    if missing:
        store.may_add()
        for place, result in _measured([cases[place] for place in missing], tell):
            store.put(result)
            found[missing[place]] = result
            words = (
                f": {result['status']}, {result['reason']}"
                if result["status"] != "ok"
                else f" ({', '.join(result['marks'])})"
                if result["marks"]
                else ""
            )
            tell(f"measured {len(found)}/{len(cases)} {cases[missing[place]]}{words}")
    return [found[place] for place in range(len(cases))]


def _measured(cases: Sequence[Asked], tell: Callable[[str], None]) -> Iterable[tuple[int, Result]]:
    device, seconds, fresh = cases[0].device, cases[0].seconds, cases[0].fresh
    cuda = device != "cpu"
    ((_, peak),) = outcomes(ceilings, [device], workers=int(cuda), seconds=seconds)
    firsts: dict[int, float | None] = {}
    if cuda:
        by_launches: dict[str, int] = {}
        for place, case in enumerate(cases):
            if case.launches == case.id or case.launches not in by_launches:
                by_launches[case.launches] = place
        apart = sorted(by_launches.values())
        took = compiled_ahead(
            compile_all, [cases[place] for place in apart], seconds=COMPILE_SECONDS, tell=tell
        )
        firsts = {apart[which]: first for which, first in took.items()}
    for place, outcome in outcomes(measure, cases, workers=int(cuda), seconds=seconds, fresh=fresh):
        case = cases[place]
        if outcome.failure and case.peer is not None and cuda:  # it may be the peer that broke the process
            ((_, alone),) = outcomes(measure, [case.alone], workers=1, seconds=seconds)
            if alone.value is not None:
                alone.value["sides"][case.peer[0]] = {"reason": outcome.failure}
                outcome = alone
        yield place, result_of(case, outcome, peak.value, firsts.get(place))


def compile_all(case: Asked) -> float | None:
    """Everything that the case launches: many at once, before anything is timed. Seconds of our first call,
    where these are known."""
    return WAYS[case.kind].compile_all(case)


def measure(case: Asked) -> dict[str, Any]:
    """All of a result that is found by doing it. What goes wrong becomes its status."""
    try:
        found = _nothing() | WAYS[case.kind].find(case)
    except UndeclaredError as undeclared:
        found = {**_nothing(), "status": "undeclared", "reason": str(undeclared)}
    except Exception as error:  # our own fault or a user's: recorded with its place, and the rest goes on
        oom = out_of_memory(error)
        found = {
            **_nothing(),
            "status": "oom" if oom else "failed",
            "reason": str(error).splitlines()[0] if oom else theirs(error),
        }
    give_back(case.device)  # the next case needs it
    return {**found, "environment": environment(case.device)}


def _nothing() -> dict[str, Any]:
    """What is found before anything is."""
    return {
        "status": "ok",
        "reason": None,
        "sides": {},
        "state": None,
        "cost": None,
        "first_call": None,
        "marks": [],
    }


def result_of(case: Asked, outcome: Outcome, peak: Ceilings | None, first: float | None) -> Result:
    """What is stored.

    Args:
        first: seconds of the first call, if it was made when everything was compiled.
    """
    found: dict[str, Any] = outcome.value or {
        **_nothing(),
        "status": "failed",
        "reason": outcome.failure,
        "environment": environment(case.device),
    }
    return {
        "schema": SCHEMA,
        "kind": case.kind,
        "id": case.id,
        "label": case.label,
        "bench": case.identity,
        "kernel_changes": len(CHANGES),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "of_peer": None if case.peer is None else peers.PEERS[case.peer[0]].note,
        **found,
        "first_call": found["first_call"] if first is None else first,
        "ceilings": None if peak is None else peak._asdict(),
    }
