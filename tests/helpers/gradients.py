"""Helpers of tests of small kernels: outputs with every gradient, and their errors."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


def results(function: Callable[..., Any], inputs: Iterable[Tensor | None], **options: Any) -> list[Tensor]:
    """Return the outputs of a function, and the gradient for each input that there is.

    The gradients are those of a loss that gives every output a weight of its own.
    """
    leaves = [None if x is None else x.detach().requires_grad_() for x in inputs]  # strided as they are given
    made = function(*leaves, **options)
    outputs = [made] if isinstance(made, Tensor) else list(made)
    numbers = torch.cat([y.double().flatten() for y in outputs])
    weights = torch.linspace(-1, 2, len(numbers), device=numbers.device, dtype=torch.float64).sin()
    gradients = torch.autograd.grad((numbers * weights).sum(), [x for x in leaves if x is not None])
    return [*(y.detach() for y in outputs), *gradients]


def error(given: Tensor, expected: Tensor) -> float:
    """||given - expected|| / ||expected||; infinite where anything is NaN or all that is expected is zero,
    and 0 where nothing is expected."""
    assert given.shape == expected.shape
    if not expected.numel():
        return 0.0
    expected = expected.double()
    measured = float((given.double() - expected).norm() / expected.norm())
    return measured if measured == measured else float("inf")


def assert_near(given: Sequence[Tensor], expected: Sequence[Tensor], limit: float) -> None:
    errors = [error(x, wanted) for x, wanted in zip(given, expected, strict=True)]
    assert max(errors) < limit, errors


def learned(function: Callable[..., Tensor], given: Iterable[Tensor]) -> list[Tensor]:
    """Return the output of a function and the gradients of a loss that knows no replicas."""
    leaves = [x.clone().requires_grad_() for x in given]
    y = function(*leaves)
    return [y.detach(), *torch.autograd.grad((y * y.detach().cos()).sum(), leaves)]


def assert_replicas_stack(
    function: Callable[..., Tensor], each: Sequence[Sequence[Tensor]], limit: float
) -> None:
    """Assert that replicas in a stack give what each gives alone, outputs and gradients."""
    together = learned(torch.vmap(function), [torch.stack(x) for x in zip(*each, strict=True)])
    for r, given in enumerate(each):
        for found, expected in zip(together, learned(function, given), strict=True):
            torch.testing.assert_close(found[r], expected, rtol=limit, atol=limit)


def saved_numbers(function: Callable[[], Tensor]) -> int:
    """Return how many numbers a call keeps in memory for its gradient."""
    kept: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.element_size()
        saved.append(x)  # or its place could be taken by another
        return x

    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        function()
    return sum(kept.values())
