"""A stored result as its readers see it: statuses, marks, and the fields that many ask for."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from linbench.common.hashing import digest
from linbench.common.laws import Law
from linbench.results.schema.fields import DRAW as DRAW
from linbench.results.schema.fields import OPERATION as OPERATION
from linbench.results.schema.fields import STEP as STEP

Result = dict[str, Any]
"""What a cell measured, as plain JSON values; see `linbench.engine.measure` for what is in it. What a
benchmark measured has a `kind` and other things in it: see `linbench.bench.run`. `linbench.results.schema`
has the fields of both, which hold for every result that a store gives."""

BENCHED = (OPERATION, STEP, DRAW)
"""What is timed beside layers."""

DIVERGED = "diverged"
"""The status of a run that ended in no numbers; it counts as chance."""

FINAL = ("ok", DIVERGED)
"""Statuses that say something of the model; a cell with another is tried again when that is asked for, or
when it came from outside."""

_OUTSIDE = (
    "its process died with SIGKILL",
    "its process died with SIGTERM",
    "its worker was lost",
    "its worker lost it",
    "3 times over: ",
)
"""How the reasons of results begin that were lost with their worker before results said so."""

UNDERTRAINED = "undertrained"
"""The mark of a result that was still getting better when its training ended."""

EDGE = "lr_edge"
"""The mark of a result whose learning rate lies on the edge of all that were tried."""

UNTRIED = "lr_untried"
"""The mark of a result beside whose learning rate another could not be tried, as a run failed."""

UNPROBED = "unprobed"
"""The mark of a result whose layer is not shipped and could not be probed for the laws that it must keep."""

UNLAWFUL = (*(law.value for law in Law), UNPROBED)
"""Marks of results of layers that break a law, or may: whatever they score says nothing."""

NO_VERDICT = (UNDERTRAINED, EDGE, UNTRIED, *UNLAWFUL)
"""Marks of results that take part in none."""


def from_outside(result: Result) -> bool:
    """Return whether what ended a cell was nothing of its own, such as a worker that was killed; then it is
    tried again whenever it is asked for."""
    if result["status"] in FINAL:
        return False
    told: bool | None = result.get("outside")
    return told if told is not None else str(result.get("reason")).startswith(_OUTSIDE)


def benched(kept: Mapping[str, Sequence[Result]]) -> list[Result]:
    """Of results by kind those of all that are `BENCHED`."""
    return [result for kind in BENCHED for result in kept[kind]]


def fingerprint(results: Iterable[Result]) -> str:
    """A hash of all that was measured, each result once: what is drawn or written from it carries this."""
    return digest(sorted(digest(result) for result in {one["id"]: one for one in results}.values()))


def rate_of(result: Result) -> float:
    """Its learning rate."""
    return float(result["cell"]["protocol"]["settings"]["lr"])


def seed_of(result: Result) -> int:
    """Its seed."""
    return int(result["cell"]["seed"])


STATE = ("recurrent", "cache", "convolution", "shift")
"""What a state is made of."""


def size_of(result: Result) -> dict[str, Any]:
    """Parameters, floats of the state and of what it is made, operations per token; None of what its model
    does not say, or where it was never built."""
    model = result["model"]
    state = model.get("state") or {}
    parts = {f"state_{part}": state.get(part) for part in ("total", *STATE)}
    return {"parameters": model.get("parameters"), **parts, "flops_per_token": model.get("flops_per_token")}
