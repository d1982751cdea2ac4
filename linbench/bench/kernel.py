"""`bench ops`: one operation at one shape, linbench's kernel and the peer's in turn in one process."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from linbench.bench import peers
from linbench.bench.case import BenchmarkCase, PeerVersion
from linbench.bench.machine import hold_load, marks, sample_load
from linbench.bench.operations import SHAPES, all_operations, kernel_versions
from linbench.bench.presets import Preset
from linbench.bench.timing import measure_peak_bytes, time_as_called, time_replayed_if_possible
from linbench.common.errors import unknown
from linbench.engine.workers import outcomes
from linbench.experiments.precision import DTYPES, Precision, pick_precision
from linbench.kernels.family import Inputs, Operation, Shape
from linbench.results.schema.benchmarks import BenchmarkResult
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED
from linbench.results.store import OPERATION, Store
from linbench.verify.kernel_errors import relative

VERSION = 1
"""Version of the measurement of kernels, part of the identity of every result.

Raise it with every change that alters what is measured.
"""

Call = Callable[[Inputs], Tensor]


@dataclass(frozen=True)
class KernelCase(BenchmarkCase):
    """One operation at one shape on a device. repeats: most calls behind a median."""

    kind: ClassVar[str] = OPERATION

    operation: str
    shape: Shape
    dtype: Precision
    device: str
    peer: PeerVersion | None = None
    repeats: int = 20

    @property
    def label(self) -> str:
        """Name of the operation."""
        return self.operation

    @property
    def identity_fields(self) -> dict[str, Any]:
        """The operation with the version of its kernels, and the shape."""
        return {
            "version": VERSION,
            "operation": self.operation,
            "kernels": kernel_versions(self.operation),
            "shape": self.shape._asdict(),
            "precision": self.dtype,
        }

    def __str__(self) -> str:
        return f"{self.operation} {self.shape} {self.dtype}"


_EMPTY = "empty function"


class _EmptyFunction(torch.autograd.Function):
    """An autograd function that allocates output and gradients and computes nothing.

    Every Triton kernel has as much of Python in front of it, so this is the part of a call that is not the
    kernel's.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        return torch.empty_like(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(
            torch.empty_like(x) if needs_gradient else None
            for x, needs_gradient in zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True)
        )


@dataclass
class _Problem:
    """Inputs of a case, and the calls and fields of result of each side that computes on them."""

    operation: Operation
    inputs: Inputs
    leaves: list[Tensor]
    cotangent: Tensor
    calls: dict[str, Call] = field(default_factory=dict)
    sides: dict[str, dict[str, Any]] = field(default_factory=dict)

    def forward(self, call: Call) -> Callable[[], Tensor]:
        return partial(call, self.inputs)

    def both(self, call: Call) -> Callable[[], tuple[Tensor, ...]]:
        return partial(_forward_backward, call, self.inputs, self.leaves, self.cotangent)


def measure(case: KernelCase) -> dict[str, Any]:
    """Measure linbench's kernel, and the peer's in turn with it. Raises whatever linbench's side raises.

    Returns:
        `sides`: for each the seconds of `forward`, with what backward needs, and of `both`, as called and
        replayed; peak bytes beyond the inputs; errors against float64; or the reason why there are none.
        `cost`: the least of both. Its bytes are inputs read twice, output and its gradient once, gradients
        written once; its flops are matrix products, as in `Operation.flops`.
        `bare`: seconds of a function that computes nothing, in turn with the sides. And marks.
    """
    began = sample_load()
    problem = _build_problem(case)
    if case.peer is not None:
        _add_peer(case, problem)
    bare = _time_sides(case, problem)
    if case.device != "cpu":
        for name, call in problem.calls.items():
            problem.sides[name]["peak_bytes"] = measure_peak_bytes(problem.both(call))
        median = problem.sides[OURS]["both"][AS_CALLED]["median"]
        hold_load(problem.both(problem.calls[OURS]), median)
    found_marks = marks(began, case.device)
    if problem.operation.exact is not None and len(problem.calls) > 1:
        _measure_errors(problem.operation.exact, problem)
    return {
        "sides": problem.sides,
        "cost": _least_cost(case, problem),
        "bare": bare,
        "marks": found_marks,
    }


def cold_call(case: KernelCase) -> float:
    """Measure the seconds of the first forward and backward, with an empty cache of compiled kernels.

    It needs a process of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        operation, inputs, leaves = _prepare(case)
        _synchronize(case)
        started = time.perf_counter()
        _call_once(operation.call, inputs, leaves)
        _synchronize(case)
        return time.perf_counter() - started


def precompile(case: KernelCase) -> None:
    """Compile everything that the case launches, and every configuration that the peer would try."""
    operation, inputs, leaves = _prepare(case)
    _call_once(operation.call, inputs, leaves)
    if case.peer is not None:
        with suppress(Exception):  # the peer's fault is reported when it is timed
            if call := peers.operation_calls(case.peer.name, compiling=True).get(case.operation):
                _call_once(call, inputs, leaves)
    _synchronize(case)


def _prepare(case: KernelCase) -> tuple[Operation, Inputs, list[Tensor]]:
    """Return the operation, its inputs, and those of them that get gradients."""
    if case.device.startswith("cuda"):
        torch.cuda.set_device(case.device)  # Triton launches on the current device
    operation = all_operations()[case.operation]
    inputs = operation.inputs(case.shape, DTYPES[case.dtype], case.device)
    return operation, inputs, [x.requires_grad_() for x in inputs.values() if x.is_floating_point()]


def _build_problem(case: KernelCase) -> _Problem:
    operation, inputs, leaves = _prepare(case)
    cotangent = torch.randn_like(operation.call(inputs)).detach()
    return _Problem(operation, inputs, leaves, cotangent, {OURS: operation.call}, {OURS: {}})


def _call_once(call: Call, inputs: Inputs, leaves: list[Tensor]) -> None:
    output = call(inputs)
    torch.autograd.grad(output, leaves, torch.ones_like(output))


def _forward_backward(
    call: Call, inputs: Inputs, leaves: list[Tensor], cotangent: Tensor
) -> tuple[Tensor, ...]:
    return torch.autograd.grad(call(inputs), leaves, cotangent)


def _add_peer(case: KernelCase, problem: _Problem) -> None:
    """Add the peer's side, unless the peer has no such operation; a peer that fails gets a reason."""
    assert case.peer is not None
    name = case.peer.name

    def build() -> Call | None:
        call = peers.operation_calls(name).get(case.operation)
        if call is not None:
            problem.both(call)()
            _synchronize(case)
        return call

    call, side = peers.try_build(name, case.device, "operations", build)
    if call is not None:
        problem.calls[name] = call
    if call is not None or side:
        problem.sides[name] = side


def _time_sides(case: KernelCase, problem: _Problem) -> dict[str, Any]:
    """Add seconds to every side, and return those of a function that computes nothing."""
    cuda = case.device != "cpu"
    forward = {name: problem.forward(call) for name, call in problem.calls.items()}
    both = {name: problem.both(call) for name, call in problem.calls.items()}

    def empty_function(given: Inputs) -> Tensor:
        apply: Any = _EmptyFunction.apply
        output: Tensor = apply(problem.cotangent, *given.values())
        return output

    timed = partial(time_as_called, repeats=case.repeats, cuda=cuda)
    forward_seconds = timed(forward)
    both_seconds = timed({**both, _EMPTY: problem.both(empty_function)})
    for name, side in problem.sides.items():
        if name in problem.calls:
            side["forward"] = {AS_CALLED: forward_seconds[name]._asdict()}
            side["both"] = {AS_CALLED: both_seconds[name]._asdict()}
    if cuda:
        _replay("forward", forward, case.repeats, problem.sides)
        _replay("both", both, case.repeats, problem.sides)
    return both_seconds[_EMPTY]._asdict()


def _replay(
    passes: str, calls: dict[str, Callable[[], Any]], repeats: int, sides: dict[str, dict[str, Any]]
) -> None:
    """Add seconds on the device alone to every side, or a note why a side cannot be captured."""
    seconds, reasons = time_replayed_if_possible(calls, repeats=repeats)
    for name in calls:
        if name in seconds:
            sides[name][passes][REPLAYED] = seconds[name]._asdict()
        else:
            sides[name]["note"] = reasons[name]


def _least_cost(case: KernelCase, problem: _Problem) -> dict[str, float]:
    inputs = sum(x.nbytes for x in problem.inputs.values())
    gradients = sum(x.nbytes for x in problem.leaves)
    moved = 2 * inputs + 2 * problem.cotangent.nbytes + gradients
    return {"bytes": moved, "flops": 3 * problem.operation.flops(case.shape)}


def _measure_errors(exact: Call, problem: _Problem) -> None:
    """Add to every side its errors against float64, as ||e|| / ||reference||: output and worst gradient."""
    wide = {name: x.detach().double().requires_grad_() for name, x in problem.inputs.items()}
    try:
        exact_output = exact(wide)
        exact_gradients = torch.autograd.grad(exact_output, list(wide.values()), problem.cotangent.double())
    except torch.OutOfMemoryError:
        return
    floor = 1e-2 * float(exact_gradients[0].norm())
    for name, call in problem.calls.items():
        output = call(problem.inputs)
        problem.sides[name]["error"] = relative(output, exact_output)
        gradients = torch.autograd.grad(output, problem.leaves, problem.cotangent)
        pairs = zip(gradients, exact_gradients, strict=True)
        problem.sides[name]["gradient_error"] = max(relative(x, y, floor) for x, y in pairs)


def _synchronize(case: KernelCase) -> None:
    if case.device.startswith("cuda"):
        torch.cuda.synchronize()


def shapes_of(preset: Preset) -> tuple[Shape, ...]:
    """Return the shapes of a preset, one for each length."""
    head_dim = preset.d_model // preset.heads
    return tuple(Shape(preset.batch(length), length, preset.heads, head_dim) for length in preset.lengths)


def plan(
    *,
    device: str,
    operations: Sequence[str] = (),
    shapes: Sequence[Shape] = (),
    dtype: str | None = None,
    peer: str | None = None,
    repeats: int | None = None,
) -> list[KernelCase]:
    """Return the cases, shape by shape.

    Args:
        repeats: most calls behind a median. Default: 20 on a CPU, 100 on a GPU.

    Raises UserError: an unknown name. A peer that cannot run here is a reason in every row instead.
    """
    kind = device.partition(":")[0]
    known = all_operations()
    for name in operations:
        if name not in known:
            raise unknown("operation", name, known)
    precision = pick_precision(dtype, device)
    version = peers.resolve_peer(peer, device, "operations")
    repeats = repeats or (20 if kind == "cpu" else 100)
    return [
        KernelCase(name, shape, precision, device, version, repeats)
        for shape in shapes or SHAPES[kind]
        for name in operations or known
    ]


def add_cold_calls(
    cases: Sequence[KernelCase],
    results: Sequence[BenchmarkResult],
    store: Store,
    *,
    again: bool,
    tell: Callable[[str], None],
) -> None:
    """Add `cold_call` to results and store them: seconds of the first call in a fresh process.

    Results that have it keep it, unless `again`.
    """
    workers = max(1, min(4, (os.cpu_count() or 1) // 4))  # compilation of one case uses several cores
    missing = [i for i, result in enumerate(results) if again or result.get("cold_call") is None]
    alone = [cases[i].without_peer for i in missing]
    for which, outcome in outcomes(cold_call, alone, workers=workers, seconds=KernelCase.timeout, fresh=True):
        i = missing[which]
        results[i]["cold_call"] = outcome.value
        store.put(results[i])
        tell(f"first call of {cases[i]}: {outcome.failure or f'{outcome.value:.1f} s'}")
