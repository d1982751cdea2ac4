"""How far a kernel is from the same mathematics in float64, on the very same rounded inputs and with the same
cotangents."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

Inputs = dict[str, Tensor]
Function = Callable[[Inputs], tuple[Tensor, ...]]


class Trial(NamedTuple):
    """A kernel, the truth, and inputs, of which each gets a gradient unless the kernel has none."""

    kernel: Function
    truth: Function
    inputs: Inputs
    differentiable: bool = True


class Errors(NamedTuple):
    """||e|| / ||reference||, the worst of outputs and the worst of gradients with the input's name, None
    where there are none, and seconds of the call."""

    output: float
    gradient: float | None
    worst: str
    seconds: float


def normal(*shape: int) -> Tensor:
    """Draws for a trial, in float64, the same every time."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def errors_of(kernel: Function, truth: Function, inputs: Inputs, differentiable: bool = True) -> Errors:
    """Of outputs, and of the gradients of all `inputs` where the kernel is `differentiable`; `truth` takes
    them in float64.

    A gradient may vanish by cancellation: its error is relative to no less than a hundredth of the norm of
    the first input's gradient. What is not finite has an infinite error.
    """
    leaves = {name: x.detach().clone().requires_grad_(differentiable) for name, x in inputs.items()}
    wide = {name: x.detach().double().requires_grad_(differentiable) for name, x in inputs.items()}
    with poisoned():
        started = time.perf_counter()
        outputs = kernel(leaves)
        cotangents = [_cotangent(output) for output in outputs]
        gradients = (
            torch.autograd.grad(outputs, list(leaves.values()), cotangents, materialize_grads=True)
            if differentiable
            else ()
        )
        if outputs[0].is_cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
    expected = truth(wide)
    output = max(relative(x, y) for x, y in zip(outputs, expected, strict=True))
    if not differentiable:
        return Errors(output, None, "", seconds)
    expected_gradients = torch.autograd.grad(
        expected, list(wide.values()), [x.double() for x in cotangents], materialize_grads=True
    )
    floor = 1e-2 * float(expected_gradients[0].norm())
    of_gradients = [relative(x, y, floor) for x, y in zip(gradients, expected_gradients, strict=True)]
    worst = max(range(len(of_gradients)), key=of_gradients.__getitem__)
    return Errors(output, of_gradients[worst], list(inputs)[worst], seconds)


def relative(given: Tensor, expected: Tensor, floor: float = 0.0) -> float:
    """||given - expected|| over the larger of ||expected|| and `floor`; infinite where anything is not
    finite."""
    apart = (given.detach().double() - expected.detach()).norm()
    norm = max(float(expected.detach().norm()), floor)
    error = float(apart) / norm if norm else float(apart) and float("inf")
    return error if error == error else float("inf")


def _cotangent(output: Tensor) -> Tensor:
    """Signed random numbers, the same on every device."""
    numbers = torch.randn(
        output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(output.dim())
    )
    return numbers.to(output)


@contextmanager
def poisoned() -> Iterator[None]:
    """Memory that nothing was written to holds NaN, so that a kernel which leaves out a place is found
    out."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
