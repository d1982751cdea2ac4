"""`bench train`: whole training steps, captured and replayed as a run does them, beside a peer's and part by part."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch

from linbench.benchmark import peers
from linbench.benchmark.compiling import compiled_ahead
from linbench.benchmark.parts import parts
from linbench.benchmark.shapes import parsed, written
from linbench.cell import Cell
from linbench.common.errors import UserError
from linbench.measure import started
from linbench.plan import plan as plan_cells
from linbench.precision import pick_precision
from linbench.train import Step
from linbench.workers import Outcome, one_line, outcomes

HEAD_DIM = 64
SECONDS = 600.0
"""A row that takes longer hangs."""
_WINDOW_SECONDS = 0.2
WARM_UP = 5
AHEAD = 500
"""Steps that examples are drawn for at once, at most: a run with small batches draws for more, but a window is at least as long."""
_STEPS = 6 * AHEAD
"""Of the runs that steps are taken of, for every window: more than are ever taken."""


class Shape(NamedTuple):
    """Batch, length and width."""

    B: int
    T: int
    D: int

    def __str__(self) -> str:
        return written(self._asdict())


SHAPES = {
    "cuda": (Shape(512, 64, 64), Shape(256, 128, 64), Shape(128, 256, 128), Shape(64, 512, 128)),
    "cpu": (Shape(32, 64, 64),),
}
MODELS = ("attention", "linear_attention", "deltanet", "gated_deltanet")
_SETTINGS: dict[str, Any] = {"task.vocab_size": 8192, "task.filler": "zero", "model.layers": 2, "model.channel_mixer": "none"}
_OWN: dict[str, dict[str, Any]] = {
    "attention": {"model.positions": "none"},
    "linear_attention": {},
    "deltanet": {},
    "gated_deltanet": {"model.expand_k": 1.0, "model.expand_v": 1.0},
}
"""What the peer's layer is: without positions, keys and values as wide as the model."""


class Row(NamedTuple):
    """What is measured; `peer` may be None."""

    model: str
    shape: Shape
    precision: str
    replicas: int
    device: str
    peer: str | None
    repeats: int
    by_part: bool

    def __str__(self) -> str:
        return f"{self.model} {self.shape} {self.precision}{f' x{self.replicas}' if self.replicas > 1 else ''}"


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """`B512xT64xD64,...`. Raises UserError."""
    return parsed(text, Shape, "B512xT64xD64,B128xT256xD128")


def plan(
    *,
    device: str,
    models: Sequence[str] = (),
    shapes: Sequence[Shape] = (),
    replicas: Sequence[int] = (1,),
    precision: str | None = None,
    peer: str | None = None,
    repeats: int | None = None,
    by_part: bool = False,
) -> list[Row]:
    """The rows, shape by shape. Raises UserError: a name that is not there, a shape that cannot be, or a peer that is not installed."""
    kind = device.partition(":")[0]
    precision = pick_precision(precision, device)
    if peer is not None:
        peers.check(peer, device, "training steps")
    if by_part and kind == "cpu":
        raise UserError("--profile needs a GPU: it says which kernels a step spends its time in.")
    wanted = [
        Row(model, shape, precision, count, device, peer if count == 1 else None, repeats or (5 if kind == "cpu" else 9), by_part)
        for shape in shapes or SHAPES[kind]
        for model in models or MODELS
        for count in replicas
    ]
    for row in wanted:
        try:
            cells(row)
        except UserError as error:
            raise UserError(f"{row.model} at {row.shape} cannot be: {error}") from None
    return wanted


def cells(row: Row) -> list[Cell]:
    """One for each replica, with a seed and a learning rate of its own: recall of a sixteenth as many pairs as tokens, heads of 64."""
    shape = row.shape
    settings = _SETTINGS | _OWN.get(row.model, {}) | {"task.seq_len": shape.T, "task.kv_pairs": max(2, shape.T // 16)}
    settings |= {"protocol.batch_size": shape.B, "protocol.precision": row.precision, "model.d_model": shape.D}
    settings |= {"protocol.tokens": _STEPS * (row.repeats + 3) * shape.B * shape.T}
    heads = {"model.heads": max(1, shape.D // HEAD_DIM)} if row.model in _OWN else {}
    return [
        cell
        for replica in range(row.replicas)
        for cell in plan_cells(
            "mqar", [row.model], seeds=[replica], settings=settings | heads | {"protocol.lr": 1e-3 * (1 + replica)}, device=row.device, protocol=None
        )
    ]


def run(rows: Sequence[Row], *, tell: Callable[[str], None], keep: Callable[[dict[str, Any]], None] = lambda found: None) -> dict[str, Any]:
    """All that was found, for JSON. On a GPU everything is compiled first, side by side; then each row is measured in a process of its own."""
    cuda = rows[0].device != "cpu"
    if cuda:
        compiled_ahead(compile_all, rows, seconds=SECONDS, tell=tell)
    found: dict[str, Any] = {"rows": [], "peer": next((row.peer for row in rows if row.peer), None), "notes": _notes(rows)}
    for place, outcome in outcomes(measure, rows, workers=int(cuda), seconds=SECONDS, fresh=True):
        found["rows"].append(row_of(rows[place], outcome))
        tell(f"measured {len(found['rows'])}/{len(rows)} {rows[place]}{f': {outcome.failure}' if outcome.failure else ''}")
        keep(found)
    return found


def row_of(row: Row, outcome: Outcome) -> dict[str, Any]:
    """One row: tokens per second of both sides, and how many times more ours has."""
    shown = {**row._asdict(), "shape": row.shape._asdict(), "reason": outcome.failure}
    if outcome.value is None:
        return shown
    tokens = row.shape.B * row.shape.T
    speeds = {side: tokens * (row.replicas if side == "linbench" else 1) / seconds for side, seconds in outcome.value["seconds"].items()}
    ratio = speeds["linbench"] / speeds[row.peer] if row.peer in speeds else None
    return {**shown, **outcome.value, "tokens_per_second": speeds, "ratio": ratio}


def compile_all(row: Row) -> None:
    """Everything that the row launches: many rows at once, before anything is timed."""
    group = cells(row)
    with started(group) as training:
        Step(training, 0, 0)()
        if row.peer is not None:
            peers.trainer(row.peer, group[0], compiling=True)()


def measure(row: Row) -> dict[str, Any]:
    """Seconds of a step for each side: medians over windows in turn, drawing batches included; peak memory; and the parts of ours.

    Raises whatever our own side raises.
    """
    group, cuda = cells(row), row.device != "cpu"
    found: dict[str, Any] = {"reason": None}
    with started(group) as training:
        step = Step(training, 0, 0)
        step.feed.ahead = min(step.feed.ahead, AHEAD)
        for _ in range(WARM_UP):
            step()
        _synchronise(cuda)
        found |= {"captured": step.run.graph is not None, "note": training.note, "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None}
        sides: dict[str, Callable[[], None]] = {"linbench": step}
        if row.peer is not None:
            try:
                sides[row.peer] = peers.trainer(row.peer, group[0])
                sides[row.peer]()
                _synchronise(cuda)
            except Exception as error:  # a fault of the peer's is a word in its row
                sides.pop(row.peer, None)
                found["reason"] = f"{row.peer} {one_line(error)}"
        found["seconds"] = _in_turn(sides, row.repeats, fewest={"linbench": step.feed.ahead}, cuda=cuda)
        if row.by_part:
            found["parts"] = {"examples": _window(step.feed.fill, row.repeats, cuda=cuda) / step.feed.ahead, **parts(step)}
    return found


def _in_turn(sides: dict[str, Callable[[], None]], repeats: int, *, fewest: dict[str, int], cuda: bool) -> dict[str, float]:
    """Seconds of a call: the median over windows of many calls, a window of one side after one of the other.

    fewest: calls of a window, or whole multiples of them: so often a call does more.
    """
    windows: dict[str, int] = {}
    for name, call in sides.items():
        for _ in range(WARM_UP):
            call()
        at_least = fewest.get(name, 1)
        windows[name] = at_least * max(1, round(_WINDOW_SECONDS / _window(call, at_least, cuda=cuda) / at_least))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, call in sides.items():
            seconds[name].append(_window(call, windows[name], cuda=cuda))
    return {name: median(found) for name, found in seconds.items()}


def _window(call: Callable[[], None], count: int, *, cuda: bool) -> float:
    _synchronise(cuda)
    began = time.perf_counter()
    for _ in range(count):
        call()
    _synchronise(cuda)
    return (time.perf_counter() - began) / count


def _synchronise(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()


def _notes(rows: Sequence[Row]) -> list[str]:
    """What a reader must know to read the numbers."""
    notes = [
        "Medians over windows of many steps, wall clock until the device is done. A step: batch, forward, loss at the labelled positions, backward, "
        "clipping, AdamW; on a GPU captured and replayed; drawing examples is included. MQAR with vocabulary 8192, T/16 pairs, two layers, heads of 64, no "
        "channel mixer.",
    ]
    if peer := next((row.peer for row in rows if row.peer), None):
        notes.append(f"Peer: {peers.PEERS[peer].note}")
    return notes
