"""`bench ops`: which operations at which shapes, in which processes, and what comes of it."""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from linbench.benchmark import peers
from linbench.benchmark.compiling import compiled_ahead
from linbench.benchmark.measure import Measured, Task, compile_all, first_call, measure
from linbench.benchmark.operations import OPERATIONS, SHAPES, Shape
from linbench.benchmark.timing import Ceilings, ceilings
from linbench.common.errors import unknown
from linbench.precision import pick_precision
from linbench.speeds import OURS
from linbench.workers import Outcome, outcomes

COMPILE_SECONDS, SECONDS = 900.0, 600.0
"""A row that takes longer hangs."""

Row = dict[str, Any]
Tell = Callable[[str], None]


def plan(
    *, device: str, operations: Sequence[str] = (), shapes: Sequence[Shape] = (), dtype: str | None = None, peer: str | None = None, repeats: int | None = None
) -> list[Task]:
    """The rows, shape by shape. Raises UserError: a name that is not there, or a peer that is not."""
    kind = device.partition(":")[0]
    for name in operations:
        if name not in OPERATIONS:
            raise unknown("operation", name, OPERATIONS)
    precision = pick_precision(dtype, device)
    if peer is not None:
        peers.check(peer, device)
    repeats = repeats or (20 if kind == "cpu" else 100)
    return [Task(name, shape, precision, device, peer, repeats) for shape in shapes or SHAPES[kind] for name in operations or OPERATIONS]


def run(tasks: Sequence[Task], *, first_calls: bool = False, tell: Tell, keep: Callable[[dict[str, Any]], None] = lambda found: None) -> dict[str, Any]:
    """All that was found, for JSON. On a GPU everything is compiled first, side by side; then rows are measured one by one in a process of
    their own, which is replaced when one fails.

    Args:
        first_calls: also time each first call, in a fresh process with an empty cache.
        tell: hears a line for each step.
        keep: is given what there is after every row.
    """
    device, peer = tasks[0].device, tasks[0].peer
    cores, cuda = os.cpu_count() or 1, device != "cpu"
    best: Ceilings = _only(outcomes(ceilings, [device], workers=int(cuda)))
    found: dict[str, Any] = {"ceilings": best._asdict(), "peer": peer, "notes": _notes(tasks[0]), "rows": []}
    if cuda:
        compiled_ahead(compile_all, tasks, seconds=COMPILE_SECONDS, tell=tell)
    rows: dict[int, Row] = {}
    for place, outcome in outcomes(measure, tasks, workers=int(cuda), seconds=SECONDS):
        task = tasks[place]
        if outcome.failure and task.peer:  # it may be the peer that broke the process
            alone = _only_outcome(task._replace(peer=None), workers=int(cuda))
            outcome = alone._replace(value=_blame(alone.value, task.peer, outcome.failure)) if alone.value else alone
        rows[place] = row_of(task, outcome, best)
        tell(f"measured {len(rows)}/{len(tasks)} {task}{f': {outcome.failure}' if outcome.failure else ''}")
        found["rows"] = list(rows.values())
        keep(found)
    if first_calls:
        for place, outcome in outcomes(first_call, tasks, workers=max(1, min(4, cores // 4)), seconds=SECONDS, fresh=True):
            rows[place]["first_call"] = outcome.value
            tell(f"first call of {tasks[place]}: {outcome.failure or f'{outcome.value:.1f} s'}")
            keep(found)
    found["summary"] = summary(found["rows"], peer)
    keep(found)
    return found


def row_of(task: Task, outcome: Outcome, best: Ceilings) -> Row:
    """One row: sides, floors in seconds, the share of each floor that forward and backward reach, and how many times faster than the peer."""
    row: Row = {"operation": task.operation, "shape": task.shape._asdict(), "dtype": task.dtype, "reason": outcome.failure}
    if outcome.value is None:
        return row
    measured: Measured = outcome.value
    ours = measured.sides[OURS]
    floors = {"bytes": measured.bytes / best.bytes_per_second, "flops": measured.flops / best.flops_per_second, "call": measured.call}
    alone: float = ours["device_both" if "device_both" in ours else "both"]
    reached = {"bytes": alone, "flops": alone, "call": ours["both"]}
    theirs = measured.sides.get(task.peer or "", {})
    ratios = {name: theirs[name] / ours[name] for name in ("forward", "both", "device_forward", "device_both", "peak_bytes") if name in theirs and name in ours}
    return {**row, "sides": measured.sides, "floors": floors, "shares": {name: floor / reached[name] for name, floor in floors.items()}, "ratios": ratios}


def summary(rows: Sequence[Row], peer: str | None) -> list[dict[str, Any]]:
    """By shape, how many times faster than the peer: the geometric mean over operations, and the least with its operation."""
    found = []
    for shape in {tuple(row["shape"].values()): None for row in rows}:
        for what in ("both", "device_both", "peak_bytes"):
            ratios = {row["operation"]: row["ratios"][what] for row in rows if tuple(row["shape"].values()) == shape and what in row.get("ratios", {})}
            if ratios:
                mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
                least = min(ratios, key=ratios.__getitem__)
                found.append({"shape": str(Shape(*shape)), "what": what, "peer": peer, "geometric_mean": mean, "least": ratios[least], "least_of": least})
    return found


def _only(steps: Any) -> Any:
    ((_, outcome),) = steps
    if outcome.failure:
        raise RuntimeError(outcome.failure)
    return outcome.value


def _only_outcome(task: Task, *, workers: int) -> Outcome:
    ((_, outcome),) = outcomes(measure, [task], workers=workers, seconds=SECONDS)
    return outcome


def _blame(measured: Measured, peer: str, reason: str) -> Measured:
    measured.sides[peer] = {"reason": reason}
    return measured


def _notes(task: Task) -> list[str]:
    """What a reader must know to read the numbers."""
    product = "an 8192^3 bf16 product" if task.device != "cpu" else "a 1024^3 float32 product"
    notes = [
        "Medians, a GPU's caches overwritten before. As called: wall clock around the call until the device is done; forward with what backward needs, and "
        "both. Device: replayed from a CUDA graph. Peak memory: of both, beyond the inputs.",
        "Floors of both: the inputs read by each, output and gradients written and read once, at the bandwidth of a copy; and the least matrix arithmetic "
        f"at the rate of {product}; measured in this run. Of a call as called: a function of Python's, in turn with the others, that makes room for output and "
        "gradients and computes nothing, as stands before every kernel of Triton's. Shares say how near it comes.",
    ]
    if task.peer:
        notes += [f"Peer: {peers.titled(task.peer)}, in the same process and in turn; a ratio above 1 is in our favour. {peers.PEERS[task.peer].note}"]
    return notes
