"""One operation at one shape: ours and the peer's in turn, in the same process."""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from linbench.benchmark import peers
from linbench.benchmark.operations import OPERATIONS, Inputs, Operation, Shape
from linbench.benchmark.timing import as_called, peak_bytes, replayed_where_possible
from linbench.doctor.errors import relative
from linbench.precision import DTYPES, Precision
from linbench.speeds import OURS
from linbench.workers import one_line

Call = Callable[[Inputs], Tensor]
Side = dict[str, Any]


class Task(NamedTuple):
    """What is measured; `peer` may be None."""

    operation: str
    shape: Shape
    dtype: Precision
    device: str
    peer: str | None
    repeats: int

    def __str__(self) -> str:
        return f"{self.operation} {self.shape} {self.dtype}"


class Measured(NamedTuple):
    """By side, ours and the peer's: seconds as called and replayed, peak bytes, errors, or the reason why there are none.

    bytes: what forward and backward must move: each reads the inputs; one writes the output, the other reads its gradient and writes theirs.
    flops: the least matrix arithmetic of both, as `Operation.flops`.
    call: seconds that a caller waits for a function of Python's which computes nothing (`_Bare`), in turn with the sides.
    """

    sides: dict[str, Side]
    bytes: int
    flops: float
    call: float


_BARE = "bare"


class _Bare(torch.autograd.Function):
    """What stands before every kernel of Triton's, and no more: it makes room for an output and for gradients."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        return torch.empty_like(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(torch.empty_like(x) if wanted else None for x, wanted in zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True))


def measure(task: Task) -> Measured:
    """Seconds are medians; "both" is forward and backward. Raises whatever our own side raises."""
    operation, inputs, leaves = _prepare(task)
    cotangent = torch.randn_like(operation.call(inputs)).detach()
    size = sum(x.nbytes for x in inputs.values())
    found: dict[str, Side] = {OURS: {}}
    calls: dict[str, Call] = {OURS: operation.call}
    if task.peer is not None:
        _add_peer(task, inputs, leaves, cotangent, calls, found)
    forward = {name: partial(call, inputs) for name, call in calls.items()}
    both = {name: partial(_both, call, inputs, leaves, cotangent) for name, call in calls.items()}
    cuda = task.device.startswith("cuda")
    bare = partial(_both, lambda given: _Bare.apply(cotangent, *given.values()), inputs, leaves, cotangent)  # type: ignore[no-untyped-call]
    timed = partial(as_called, repeats=task.repeats, cuda=cuda)
    seconds = {"forward": timed(forward), "both": timed({**both, _BARE: bare})}
    for what, these in (("forward", forward), ("both", both)):
        for name in these:
            found[name][what] = seconds[what][name].median
        if cuda:
            _replay(what, these, task.repeats, found)
    if cuda:
        for name, call in both.items():
            found[name]["peak_bytes"] = peak_bytes(call)
    if operation.exact is not None and len(calls) > 1:
        _compare(operation.exact, inputs, leaves, cotangent, calls, found)
    moved = 2 * size + 2 * cotangent.nbytes + sum(x.nbytes for x in leaves)
    return Measured(found, moved, 3 * operation.flops(task.shape), seconds["both"][_BARE].median)


def first_call(task: Task) -> float:
    """Seconds of the first forward and backward, compilation included, with nothing compiled before. For a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        operation, inputs, leaves = _prepare(task)
        _synchronise(task)
        started = time.perf_counter()
        output = operation.call(inputs)
        torch.autograd.grad(output, leaves, torch.ones_like(output))
        _synchronise(task)
        return time.perf_counter() - started


def compile_all(task: Task) -> None:
    """Everything that the task launches, and for the peer every configuration that it would try: many at once, before anything is timed."""
    operation, inputs, leaves = _prepare(task)
    calls = [operation.call]
    if task.peer is not None and (call := peers.calls(task.peer, compiling=True).get(task.operation)):
        calls.append(call)
    for call in calls:
        output = call(inputs)
        torch.autograd.grad(output, leaves, torch.ones_like(output))
    _synchronise(task)


def _prepare(task: Task) -> tuple[Operation, Inputs, list[Tensor]]:
    if task.device.startswith("cuda"):
        torch.cuda.set_device(task.device)  # where Triton launches
    operation = OPERATIONS[task.operation]
    inputs = operation.inputs(task.shape, DTYPES[task.dtype], task.device)
    return operation, inputs, [x.requires_grad_() for x in inputs.values() if x.is_floating_point()]


def _both(call: Call, inputs: Inputs, leaves: list[Tensor], cotangent: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(call(inputs), leaves, cotangent)


def _add_peer(task: Task, inputs: Inputs, leaves: list[Tensor], cotangent: Tensor, calls: dict[str, Call], found: dict[str, Side]) -> None:
    """The peer's side, if it has the operation and can do it."""
    assert task.peer is not None
    found[task.peer] = {}
    try:
        call = peers.calls(task.peer).get(task.operation)
        if call is None:
            del found[task.peer]
            return
        _both(call, inputs, leaves, cotangent)
        _synchronise(task)
    except Exception as error:  # a fault of the peer's is a word in its row
        found[task.peer]["reason"] = one_line(error)
    else:
        calls[task.peer] = call


def _replay(what: str, calls: dict[str, partial[Any]], repeats: int, found: dict[str, Side]) -> None:
    """Seconds on the device alone; a side that cannot be captured goes without."""
    seconds, reasons = replayed_where_possible(calls, repeats=repeats)
    for name in calls:
        found[name] |= {f"device_{what}": seconds[name].median} if name in seconds else {"reason": reasons[name]}


def _compare(exact: Call, inputs: Inputs, leaves: list[Tensor], cotangent: Tensor, calls: dict[str, Call], found: dict[str, Side]) -> None:
    """Errors of every side against float64, as ||e|| / ||reference||: of the output, and the worst of the gradients."""
    wide = {name: x.detach().double().requires_grad_() for name, x in inputs.items()}
    try:
        output = exact(wide)
        gradients = torch.autograd.grad(output, list(wide.values()), cotangent.double())
    except torch.OutOfMemoryError:
        return
    floor = 1e-2 * float(gradients[0].norm())
    for name, call in calls.items():
        given = call(inputs)
        found[name]["error"] = relative(given, output)
        both = zip(torch.autograd.grad(given, leaves, cotangent), gradients, strict=True)
        found[name]["gradient_error"] = max(relative(x, y, floor) for x, y in both)


def _synchronise(task: Task) -> None:
    if task.device.startswith("cuda"):
        torch.cuda.synchronize()
