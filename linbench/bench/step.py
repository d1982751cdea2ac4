"""`bench train`: whole training steps, captured and replayed as a run does them, perhaps beside a peer's."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple

import torch

from linbench.bench import peers
from linbench.bench.case import BenchmarkCase, PeerVersion
from linbench.bench.machine import hold_load, marks, sample_load
from linbench.bench.presets import Preset, with_heads
from linbench.bench.profile import time_by_part
from linbench.bench.shapes import format_shape, parse
from linbench.bench.timing import Spread, summarize
from linbench.common.errors import UserError
from linbench.engine.measure import training_context
from linbench.engine.step import Step
from linbench.experiments.cell import Cell
from linbench.experiments.plan import plan as plan_cells
from linbench.experiments.precision import pick_precision
from linbench.experiments.run_spec import RunSpec
from linbench.results.speed_labels import AS_CALLED, OURS
from linbench.results.store import STEP

VERSION = 1
"""Version of the measurement of steps, part of the identity of every result.

Raise it with every change that alters what is measured.
"""

HEAD_DIM = 64
"""Head dimension of every model that has heads."""

_WINDOW_SECONDS = 0.2
"""Length of a window of steps, at least."""

WARM_UP = 5
"""Steps before the first window."""

AHEAD = {"cuda": 500, "cpu": 8}
"""Most steps whose examples are drawn at once, by kind of device.

A run with small batches draws for more. Here a window must be at least as long as the steps of one draw last.
"""

_MAX_STEPS_PER_WINDOW = 6 * max(AHEAD.values())
"""Steps that a run is planned for, for each window: more than are ever taken."""


class Shape(NamedTuple):
    """Batch B, length T and width D."""

    B: int
    T: int
    D: int

    def __str__(self) -> str:
        return format_shape(self._asdict())


SHAPES = {
    "cuda": (Shape(512, 64, 64), Shape(256, 128, 64), Shape(128, 256, 128), Shape(64, 512, 128)),
    "cpu": (Shape(32, 64, 64),),
}
"""Shapes that are measured if none are given, by kind of device."""

MODELS = ("attention", "linear_attention", "deltanet", "gated_deltanet")
"""Models that are measured if none are given: those that the peer `zoology-style` has."""

_SETTINGS: dict[str, Any] = {
    "task.vocab_size": 8192,
    "task.filler": "zero",
    "model.layers": 2,
    "model.channel_mixer": "none",
}
_OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "attention": {"model.positions": "none"},
    "linear_attention": {},
    "deltanet": {},
    "gated_deltanet": {"model.expand_k": 1.0, "model.expand_v": 1.0},
}
"""Settings that make a model like the peer's: no positions, keys and values as wide as the model."""


@dataclass(frozen=True)
class StepCase(BenchmarkCase):
    """Training steps of one model at one shape on a device.

    Args:
        replicas: models that train as one program.
        repeats: windows behind a median.
        by_part: also measure where the time of a step goes.
    """

    kind: ClassVar[str] = STEP
    fresh_process: ClassVar[bool] = True

    model: str
    shape: Shape
    precision: str
    replicas: int
    device: str
    peer: PeerVersion | None
    repeats: int
    by_part: bool

    @property
    def label(self) -> str:
        """Model as the user wrote it."""
        return self.model

    @property
    def identity_fields(self) -> dict[str, Any]:
        """The model and the task as in a cell, and the shape."""
        cell = self.cells[0].identity
        return {
            "version": VERSION,
            "model": cell["model"],
            "task": cell["task"],
            "shape": self.shape._asdict(),
            "replicas": self.replicas,
            "precision": self.precision,
            "by_part": self.by_part,
        }

    @property
    def cells(self) -> list[Cell]:
        """One cell per replica, each with its own seed and learning rate: MQAR with T/16 pairs."""
        shape = self.shape
        settings = {
            **_SETTINGS,
            **_OWN_SETTINGS.get(self.model, {}),
            "task.seq_len": shape.T,
            "task.kv_pairs": max(2, shape.T // 16),
            "protocol.batch_size": shape.B,
            "protocol.precision": self.precision,
            "protocol.tokens": _MAX_STEPS_PER_WINDOW * (self.repeats + 3) * shape.B * shape.T,
            "model.d_model": shape.D,
        }
        if with_heads(self.model):
            settings["model.heads"] = max(1, shape.D // HEAD_DIM)
        return [cell for replica in range(self.replicas) for cell in self._plan_replica(replica, settings)]

    def _plan_replica(self, replica: int, settings: dict[str, Any]) -> list[Cell]:
        own = settings | {"protocol.lr": 1e-3 * (1 + replica)}
        return plan_cells(RunSpec("mqar", [self.model], seeds=[replica], settings=own, device=self.device))

    def __str__(self) -> str:
        replicas = f" x{self.replicas}" if self.replicas > 1 else ""
        return f"{self.model} {self.shape} {self.precision}{replicas}"


def shapes_of(preset: Preset) -> tuple[Shape, ...]:
    """Return the shapes of a preset, one for each length."""
    return tuple(Shape(preset.batch(length), length, preset.d_model) for length in preset.lengths)


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Parse `B512xT64xD64,...`. Raises UserError: it is something else."""
    return parse(text, Shape, "B512xT64xD64,B128xT256xD128")


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
) -> list[StepCase]:
    """Return the cases, shape by shape. The peer is measured beside single models only.

    Args:
        repeats: windows behind a median. Default: 5 on a CPU, 9 on a GPU.

    Raises UserError: an unknown name, or a shape that a model cannot have. A peer that cannot run here is a
    reason in every row instead.
    """
    kind = device.partition(":")[0]
    dtype, version = pick_precision(precision, device), peers.resolve_peer(peer, device, "training steps")
    if by_part and kind == "cpu":
        raise UserError("--profile needs a GPU: it says which kernels a step spends its time in.")
    repeats = repeats or (5 if kind == "cpu" else 9)
    cases = []
    for shape, model, count in product(shapes or SHAPES[kind], models or MODELS, replicas):
        side = version if count == 1 else None
        cases.append(StepCase(model, shape, dtype, count, device, side, repeats, by_part))
    for case in cases:
        try:
            _ = case.cells
        except UserError as error:
            raise UserError(f"{case.model} at {case.shape} cannot be: {error}") from None
    return cases


def precompile(case: StepCase) -> None:
    """Compile everything that the case launches."""
    group = case.cells
    with training_context(group) as training:
        Step(training, 0, 0)()
        if case.peer is not None:
            with suppress(Exception):  # the peer's fault is reported when it is timed
                peers.build_trainer(case.peer.name, group[0], compiling=True)()


def measure(case: StepCase) -> dict[str, Any]:
    """Measure the seconds of a step over windows, each side's in turn, with the drawing of examples.

    Returns:
        `sides`, with seconds, peak memory and notes; `captured`, whether linbench's step is a CUDA graph;
        marks; and `parts` of linbench's step in seconds, if the case asks for them.

    Raises whatever linbench's side raises.
    """
    group, cuda, began = case.cells, case.device != "cpu", sample_load()
    sides: dict[str, dict[str, Any]] = {OURS: {}}
    result: dict[str, Any] = {"sides": sides}
    with training_context(group) as training:
        step = Step(training, 0, 0)
        step.feed.prefetch = min(step.feed.prefetch, AHEAD[case.device.partition(":")[0]])
        for _ in range(WARM_UP):
            step()
        _synchronize(cuda)
        result["captured"] = step.run.graph is not None
        if cuda:
            sides[OURS]["peak_bytes"] = torch.cuda.max_memory_allocated()
        if training.note:
            sides[OURS]["note"] = training.note
        calls: dict[str, Callable[[], None]] = {OURS: step}
        if case.peer is not None:
            _add_peer(case, group[0], calls, sides)
        seconds = _time_in_turn(calls, case.repeats, multiples={OURS: step.feed.prefetch}, cuda=cuda)
        for name, spread in seconds.items():
            sides[name][AS_CALLED] = spread._asdict()
        if cuda:
            hold_load(step, seconds[OURS].median)
        result["marks"] = marks(began, case.device)
        if case.by_part:
            drawing = _time_window(step.feed.fill, case.repeats, cuda=cuda)
            result["parts"] = {"examples": drawing / step.feed.prefetch, **time_by_part(step)}
    return result


def _add_peer(
    case: StepCase, cell: Cell, calls: dict[str, Callable[[], None]], sides: dict[str, dict[str, Any]]
) -> None:
    """Add the peer's step; a peer that fails gets a reason."""
    assert case.peer is not None
    name = case.peer.name

    def build() -> Callable[[], None]:
        call = peers.build_trainer(name, cell)
        call()
        _synchronize(case.device != "cpu")
        return call

    call, sides[name] = peers.try_build(name, case.device, "training steps", build)
    if call is not None:
        calls[name] = call


def _time_in_turn(
    sides: dict[str, Callable[[], None]], repeats: int, *, multiples: dict[str, int], cuda: bool
) -> dict[str, Spread]:
    """Measure the seconds of a call over windows of many calls; windows of the sides take turns.

    Args:
        multiples: a window has a multiple of this many calls, because one in so many does more.
    """
    windows: dict[str, int] = {}
    for name, call in sides.items():
        for _ in range(WARM_UP):
            call()
        least = multiples.get(name, 1)
        seconds_of_least = least * _time_window(call, least, cuda=cuda)
        windows[name] = least * max(1, round(_WINDOW_SECONDS / seconds_of_least))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, call in sides.items():
            seconds[name].append(_time_window(call, windows[name], cuda=cuda))
    return {name: summarize(times) for name, times in seconds.items()}


def _time_window(call: Callable[[], None], count: int, *, cuda: bool) -> float:
    """Return the seconds of a call, over this many calls."""
    _synchronize(cuda)
    began = time.perf_counter()
    for _ in range(count):
        call()
    _synchronize(cuda)
    return (time.perf_counter() - began) / count


def _synchronize(cuda: bool) -> None:
    if cuda:
        torch.cuda.synchronize()
