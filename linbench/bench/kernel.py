"""One operation at one shape: ours and the peer's in turn, in the same process."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from linbench.bench import peers
from linbench.bench.case import Peer, Placed
from linbench.bench.machine import keep_at_work, marks, moment
from linbench.bench.operations import SHAPES, all_operations, kernel_versions
from linbench.bench.presets import Preset
from linbench.bench.timing import Spread, as_called, peak_bytes, replayed_where_possible
from linbench.common.errors import unknown
from linbench.engine.workers import outcomes
from linbench.experiments.precision import DTYPES, Precision, pick_precision
from linbench.kernels.family import Inputs, Operation, Shape
from linbench.results.record import Result
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.store import OPERATION, Store
from linbench.verify.kernel_errors import relative

VERSION = 1
"""Raised whenever a change to how kernels are measured changes what is found; part of the identity of every
result."""

Call = Callable[[Inputs], Tensor]
Side = dict[str, Any]


@dataclass(frozen=True)
class Kernel(Placed):
    """One operation at one shape, on a device: where."""

    kind: ClassVar[str] = OPERATION

    operation: str
    shape: Shape
    dtype: Precision
    where: str
    peer: Peer | None = None
    repeats: int = 20

    @property
    def label(self) -> str:
        """The operation's name."""
        return self.operation

    @property
    def particulars(self) -> dict[str, Any]:
        """The operation by the version of its kernels, and the shape."""
        shape, kernels = self.shape._asdict(), kernel_versions(self.operation)
        return {
            "version": VERSION,
            "operation": self.operation,
            "kernels": kernels,
            "shape": shape,
            "precision": self.dtype,
        }

    def __str__(self) -> str:
        return f"{self.operation} {self.shape} {self.dtype}"


_BARE = "bare"


class _Bare(torch.autograd.Function):
    """What stands before every kernel of Triton's, and no more: it makes room for an output and for
    gradients."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        return torch.empty_like(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(
            torch.empty_like(x) if wanted else None
            for x, wanted in zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True)
        )


def find(case: Kernel) -> dict[str, Any]:
    """By side, ours and the peer's: seconds of forward, with what backward needs, and of both, as called and
    replayed; peak bytes beyond the inputs; errors; or the reason why there are none.

    cost: bytes that forward and backward must move, since each reads the inputs, one writes the output, and
        the other reads its gradient and writes theirs;
    and the least matrix arithmetic of both, as `Operation.flops`. bare: seconds that a caller waits for a
    function of Python's which computes nothing (`_Bare`), in turn with the sides. Raises whatever our own
    side raises.
    """
    began = moment()
    operation, inputs, leaves = _prepare(case)
    cotangent = torch.randn_like(operation.call(inputs)).detach()
    size = sum(x.nbytes for x in inputs.values())
    sides: dict[str, Side] = {OURS: {}}
    calls: dict[str, Call] = {OURS: operation.call}
    if case.peer is not None:
        _add_peer(case, inputs, leaves, cotangent, calls, sides)
    forward = {name: partial(call, inputs) for name, call in calls.items()}
    both = {name: partial(_both, call, inputs, leaves, cotangent) for name, call in calls.items()}
    cuda = case.device != "cpu"
    bare = partial(_both, lambda given: _Bare.apply(cotangent, *given.values()), inputs, leaves, cotangent)  # type: ignore[no-untyped-call]
    timed = partial(as_called, repeats=case.repeats, cuda=cuda)
    seconds = {"forward": timed(forward), "both": timed({**both, _BARE: bare})}
    for what, these in (("forward", forward), ("both", both)):
        for name in these:
            sides[name][what] = {AS_CALLED: seconds[what][name]._asdict()}
        if cuda:
            _replay(what, these, case.repeats, sides)
    if cuda:
        for name, call in both.items():
            sides[name]["peak_bytes"] = peak_bytes(call)
        keep_at_work(both[OURS], seconds["both"][OURS].median)
    marked = marks(began, case.device)
    if operation.exact is not None and len(calls) > 1:
        _compare(operation.exact, inputs, leaves, cotangent, calls, sides)
    moved = 2 * size + 2 * cotangent.nbytes + sum(x.nbytes for x in leaves)
    cost = {"bytes": moved, "flops": 3 * operation.flops(case.shape)}
    bared: Spread = seconds["both"][_BARE]
    return {"sides": sides, "cost": cost, "bare": bared._asdict(), "marks": marked}


def cold_call(case: Kernel) -> float:
    """Seconds of the first forward and backward, compilation included, with nothing compiled before. For a
    process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        operation, inputs, leaves = _prepare(case)
        _synchronise(case)
        started = time.perf_counter()
        _once(operation.call, inputs, leaves)
        _synchronise(case)
        return time.perf_counter() - started


def compile_all(case: Kernel) -> None:
    """Everything that the case launches, and for the peer every configuration that it would try."""
    operation, inputs, leaves = _prepare(case)
    _once(operation.call, inputs, leaves)
    if case.peer is not None:
        with suppress(Exception):  # its fault is told when it is timed
            if call := peers.calls(case.peer[0], compiling=True).get(case.operation):
                _once(call, inputs, leaves)
    _synchronise(case)


def _prepare(case: Kernel) -> tuple[Operation, Inputs, list[Tensor]]:
    if case.device.startswith("cuda"):
        torch.cuda.set_device(case.device)  # where Triton launches
    operation = all_operations()[case.operation]
    inputs = operation.inputs(case.shape, DTYPES[case.dtype], case.device)
    return operation, inputs, [x.requires_grad_() for x in inputs.values() if x.is_floating_point()]


def _once(call: Call, inputs: Inputs, leaves: list[Tensor]) -> None:
    output = call(inputs)
    torch.autograd.grad(output, leaves, torch.ones_like(output))


def _both(call: Call, inputs: Inputs, leaves: list[Tensor], cotangent: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(call(inputs), leaves, cotangent)


def _add_peer(
    case: Kernel,
    inputs: Inputs,
    leaves: list[Tensor],
    cotangent: Tensor,
    calls: dict[str, Call],
    sides: dict[str, Side],
) -> None:
    """The peer's side, if it has the operation and can do it."""
    assert case.peer is not None
    name = case.peer[0]

    def make() -> Call | None:
        call = peers.calls(name).get(case.operation)
        if call is not None:
            _both(call, inputs, leaves, cotangent)
            _synchronise(case)
        return call

    call, side = peers.made_by(name, case.device, "operations", make)
    if call is not None:
        calls[name] = call
    if call is not None or side:
        sides[name] = side


def _replay(what: str, calls: dict[str, partial[Any]], repeats: int, sides: dict[str, Side]) -> None:
    """Seconds on the device alone; a side that cannot be captured goes without."""
    seconds, reasons = replayed_where_possible(calls, repeats=repeats)
    for name in calls:
        if name in seconds:
            sides[name][what][REPLAYED] = seconds[name]._asdict()
        else:
            sides[name]["note"] = reasons[name]


def _compare(
    exact: Call,
    inputs: Inputs,
    leaves: list[Tensor],
    cotangent: Tensor,
    calls: dict[str, Call],
    sides: dict[str, Side],
) -> None:
    """Errors of every side against float64, as ||e|| / ||reference||: of the output, and the worst of the
    gradients."""
    wide = {name: x.detach().double().requires_grad_() for name, x in inputs.items()}
    try:
        output = exact(wide)
        gradients = torch.autograd.grad(output, list(wide.values()), cotangent.double())
    except torch.OutOfMemoryError:
        return
    floor = 1e-2 * float(gradients[0].norm())
    for name, call in calls.items():
        given = call(inputs)
        sides[name]["error"] = relative(given, output)
        both = zip(torch.autograd.grad(given, leaves, cotangent), gradients, strict=True)
        sides[name]["gradient_error"] = max(relative(x, y, floor) for x, y in both)


def _synchronise(case: Kernel) -> None:
    if case.device.startswith("cuda"):
        torch.cuda.synchronize()


def shapes_of(preset: Preset) -> tuple[Shape, ...]:
    """A preset's, a shape for each length."""
    return tuple(
        Shape(preset.batch(length), length, preset.heads, preset.d_model // preset.heads)
        for length in preset.lengths
    )


def plan(
    *,
    device: str,
    operations: Sequence[str] = (),
    shapes: Sequence[Shape] = (),
    dtype: str | None = None,
    peer: str | None = None,
    repeats: int | None = None,
) -> list[Kernel]:
    """The cases, shape by shape. Raises UserError: a name that is not there. A peer that cannot be had is
    told in every row."""
    kind = device.partition(":")[0]
    known = all_operations()
    for name in operations:
        if name not in known:
            raise unknown("operation", name, known)
    precision, named = pick_precision(dtype, device), peers.named(peer, device, "operations")
    repeats = repeats or (20 if kind == "cpu" else 100)
    return [
        Kernel(name, shape, precision, device, named, repeats)
        for shape in shapes or SHAPES[kind]
        for name in operations or known
    ]


def add_cold_calls(
    cases: Sequence[Kernel],
    found: Sequence[Result],
    store: Store,
    *,
    again: bool,
    tell: Callable[[str], None],
) -> None:
    """To each result without, or to all `again`, `cold_call`: seconds of the first forward and backward in a
    fresh process with an empty cache, compilation included."""
    workers = max(1, min(4, (os.cpu_count() or 1) // 4))
    wanted = [place for place, result in enumerate(found) if again or result.get("cold_call") is None]
    for which, outcome in outcomes(
        cold_call,
        [cases[place].alone for place in wanted],
        workers=workers,
        seconds=Kernel.seconds,
        fresh=True,
    ):
        place = wanted[which]
        found[place]["cold_call"] = outcome.value
        store.put(found[place])
        tell(f"first call of {cases[place]}: {outcome.failure or f'{outcome.value:.1f} s'}")
