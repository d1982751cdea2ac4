"""`bench train`: whole training steps, captured and replayed as a run does them, beside a peer's and part by
part."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from linbench.bench import peers
from linbench.bench.case import Peer, Placed
from linbench.bench.machine import keep_at_work, marks, moment
from linbench.bench.presets import Preset, with_heads
from linbench.bench.profile import parts
from linbench.bench.shapes import parsed, written
from linbench.bench.timing import Spread, spread
from linbench.common.errors import UserError
from linbench.engine.measure import started
from linbench.engine.step import Step
from linbench.experiments.cell import Cell
from linbench.experiments.plan import plan as plan_cells
from linbench.experiments.precision import pick_precision
from linbench.experiments.run_spec import RunSpec
from linbench.results.speed_labels import AS_CALLED, OURS
from linbench.results.store import STEP

VERSION = 1
"""Raised whenever a change to how steps are measured changes what is found; part of the identity of every
result."""

HEAD_DIM = 64
_WINDOW_SECONDS = 0.2
WARM_UP = 5
AHEAD = {"cuda": 500, "cpu": 8}
"""Steps that examples are drawn for at once, at most: a run with small batches draws for more, but a window
is at least as long."""
_STEPS = 6 * max(AHEAD.values())
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
_SETTINGS: dict[str, Any] = {
    "task.vocab_size": 8192,
    "task.filler": "zero",
    "model.layers": 2,
    "model.channel_mixer": "none",
}
_OWN: dict[str, dict[str, Any]] = {
    "attention": {"model.positions": "none"},
    "linear_attention": {},
    "deltanet": {},
    "gated_deltanet": {"model.expand_k": 1.0, "model.expand_v": 1.0},
}
"""What the peer's layer is: without positions, keys and values as wide as the model."""


@dataclass(frozen=True)
class Steps(Placed):
    """Steps of one model at one shape, or of so many replicas as one program, on a device: where; by_part:
    and where their time goes."""

    kind: ClassVar[str] = STEP
    fresh: ClassVar[bool] = True

    model: str
    shape: Shape
    precision: str
    replicas: int
    where: str
    peer: Peer | None
    repeats: int
    by_part: bool

    @property
    def label(self) -> str:
        """The model as the user wrote it."""
        return self.model

    @property
    def particulars(self) -> dict[str, Any]:
        """The model and the task as of a cell, and the shape."""
        cell = self.cells[0].identity
        shape = {
            "shape": self.shape._asdict(),
            "replicas": self.replicas,
            "precision": self.precision,
            "by_part": self.by_part,
        }
        return {"version": VERSION, "model": cell["model"], "task": cell["task"], **shape}

    @property
    def cells(self) -> list[Cell]:
        """One for each replica, with a seed and a learning rate of its own: recall of a sixteenth as many
        pairs as tokens, heads of 64."""
        shape = self.shape
        settings = (
            _SETTINGS
            | _OWN.get(self.model, {})
            | {"task.seq_len": shape.T, "task.kv_pairs": max(2, shape.T // 16)}
        )
        settings |= {
            "protocol.batch_size": shape.B,
            "protocol.precision": self.precision,
            "model.d_model": shape.D,
        }
        settings |= {"protocol.tokens": _STEPS * (self.repeats + 3) * shape.B * shape.T}
        heads = {"model.heads": max(1, shape.D // HEAD_DIM)} if with_heads(self.model) else {}
        cells = []
        for replica in range(self.replicas):
            own = settings | heads | {"protocol.lr": 1e-3 * (1 + replica)}
            spec = RunSpec("mqar", [self.model], seeds=[replica], settings=own, device=self.device)
            cells += plan_cells(spec)
        return cells

    def __str__(self) -> str:
        return (
            f"{self.model} {self.shape} {self.precision}{f' x{self.replicas}' if self.replicas > 1 else ''}"
        )


def shapes_of(preset: Preset) -> tuple[Shape, ...]:
    """A preset's, a shape for each length."""
    return tuple(Shape(preset.batch(length), length, preset.d_model) for length in preset.lengths)


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
) -> list[Steps]:
    """The cases, shape by shape. Raises UserError: a name that is not there, or a shape that cannot be. A
    peer that cannot be had is told in every row."""
    kind = device.partition(":")[0]
    precision, named = pick_precision(precision, device), peers.named(peer, device, "training steps")
    if by_part and kind == "cpu":
        raise UserError("--profile needs a GPU: it says which kernels a step spends its time in.")
    wanted = [
        Steps(
            model,
            shape,
            precision,
            count,
            device,
            named if count == 1 else None,
            repeats or (5 if kind == "cpu" else 9),
            by_part,
        )
        for shape in shapes or SHAPES[kind]
        for model in models or MODELS
        for count in replicas
    ]
    for case in wanted:
        try:
            _ = case.cells
        except UserError as error:
            raise UserError(f"{case.model} at {case.shape} cannot be: {error}") from None
    return wanted


def compile_all(case: Steps) -> None:
    """Everything that the case launches."""
    group = case.cells
    with started(group) as training:
        Step(training, 0, 0)()
        if case.peer is not None:
            with suppress(Exception):  # its fault is told when it is timed
                peers.trainer(case.peer[0], group[0], compiling=True)()


def find(case: Steps) -> dict[str, Any]:
    """Seconds of a step for each side: over windows in turn, drawing batches included; peak memory; and the
    parts of ours.

    Raises whatever our own side raises.
    """
    group, cuda, began = case.cells, case.device != "cpu", moment()
    sides: dict[str, dict[str, Any]] = {OURS: {}}
    found: dict[str, Any] = {"sides": sides}
    with started(group) as training:
        step = Step(training, 0, 0)
        step.feed.ahead = min(step.feed.ahead, AHEAD[case.device.partition(":")[0]])
        for _ in range(WARM_UP):
            step()
        _synchronise(cuda)
        found["captured"] = step.run.graph is not None
        sides[OURS] |= ({"peak_bytes": torch.cuda.max_memory_allocated()} if cuda else {}) | (
            {"note": training.note} if training.note else {}
        )
        calls: dict[str, Callable[[], None]] = {OURS: step}
        if case.peer is not None:
            _add_peer(case, group[0], calls, sides)
        for name, seconds in _in_turn(calls, case.repeats, fewest={OURS: step.feed.ahead}, cuda=cuda).items():
            sides[name][AS_CALLED] = seconds._asdict()
        if cuda:
            keep_at_work(step, sides[OURS][AS_CALLED]["median"])
        found["marks"] = marks(began, case.device)
        if case.by_part:
            drawn = _window(step.feed.fill, case.repeats, cuda=cuda)
            found["parts"] = {"examples": drawn / step.feed.ahead, **parts(step)}
    return found


def _add_peer(
    case: Steps, cell: Cell, calls: dict[str, Callable[[], None]], sides: dict[str, dict[str, Any]]
) -> None:
    """The peer's step, if it can be had."""
    assert case.peer is not None
    name = case.peer[0]

    def make() -> Callable[[], None]:
        call = peers.trainer(name, cell)
        call()
        _synchronise(case.device != "cpu")
        return call

    call, sides[name] = peers.made_by(name, case.device, "training steps", make)
    if call is not None:
        calls[name] = call


def _in_turn(
    sides: dict[str, Callable[[], None]], repeats: int, *, fewest: dict[str, int], cuda: bool
) -> dict[str, Spread]:
    """Seconds of a call: over windows of many calls, a window of one side after one of the other.

    fewest: calls of a window, or whole multiples of them: so often a call does more.
    """
    windows: dict[str, int] = {}
    for name, call in sides.items():
        for _ in range(WARM_UP):
            call()
        at_least = fewest.get(name, 1)
        windows[name] = at_least * max(
            1, round(_WINDOW_SECONDS / _window(call, at_least, cuda=cuda) / at_least)
        )
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, call in sides.items():
            seconds[name].append(_window(call, windows[name], cuda=cuda))
    return {name: spread(found) for name, found in seconds.items()}


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
