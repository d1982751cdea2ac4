"""Errors of a kernel: how far it is from the same mathematics in float64.

Both get the very same rounded inputs, and their gradients the same cotangents.
"""

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.kernels.family import Inputs, KernelCase


class Errors(NamedTuple):
    """Errors of a kernel, each ||error|| / ||reference||.

    Args:
        output: the largest of the outputs.
        gradient: the largest of the gradients; None if the kernel has none.
        worst: name of the input whose gradient that is.
        seconds: time of the first call.
    """

    output: float
    gradient: float | None
    worst: str
    seconds: float


def errors_of(case: KernelCase) -> Errors:
    """Return the errors of a case's outputs and, if it is differentiable, of the gradients of its inputs.

    The reference takes the inputs in float64. A gradient may vanish by cancellation: its error is relative to
    no less than a hundredth of the norm of the first input's gradient. What is not finite has an infinite
    error.
    """
    inputs = {name: _leaf(x.detach().clone(), case) for name, x in case.inputs.items()}
    with poisoned():
        started = time.perf_counter()
        outputs = case.kernel(inputs)
        cotangents = [_cotangent(output) for output in outputs]
        gradients = _gradients(outputs, inputs, cotangents) if case.differentiable else {}
        if outputs[0].is_cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
    exact = {name: _leaf(_to_float64(x), case) for name, x in case.inputs.items()}
    expected = case.reference(exact)
    output = max(relative(x, y) for x, y in zip(outputs, expected, strict=True))
    if not case.differentiable:
        return Errors(output, None, "", seconds)
    expected_gradients = _gradients(expected, exact, [x.double() for x in cotangents])
    floor = 1e-2 * float(next(iter(expected_gradients.values())).norm())
    errors = {name: relative(gradients[name], x, floor) for name, x in expected_gradients.items()}
    worst = max(errors, key=errors.__getitem__)
    return Errors(output, errors[worst], worst, seconds)


def _leaf(x: Tensor, case: KernelCase) -> Tensor:
    return x.requires_grad_(case.differentiable and x.is_floating_point())


def _to_float64(x: Tensor) -> Tensor:
    return x.detach().double() if x.is_floating_point() else x


def _gradients(outputs: tuple[Tensor, ...], inputs: Inputs, cotangents: list[Tensor]) -> Inputs:
    leaves = {name: x for name, x in inputs.items() if x.is_floating_point()}
    gradients = torch.autograd.grad(outputs, list(leaves.values()), cotangents, materialize_grads=True)
    return dict(zip(leaves, gradients, strict=True))


def relative(given: Tensor, expected: Tensor, floor: float = 0.0) -> float:
    """Return ||given - expected|| over the larger of ||expected|| and `floor`; infinity if that is NaN."""
    expected = expected.detach().double()
    distance = float((given.detach().double() - expected).norm())
    norm = max(float(expected.norm()), floor)
    if norm == 0:
        return float("inf") if distance != 0 else 0.0
    error = distance / norm
    return float("inf") if math.isnan(error) else error


def _cotangent(output: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(output.dim())
    return torch.randn(output.shape, dtype=torch.float64, generator=generator).to(output)


@contextmanager
def poisoned() -> Iterator[None]:
    """Fill new memory with NaN meanwhile, so that a place which a kernel leaves out is noticed."""
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
