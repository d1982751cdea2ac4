"""The law of gradients: they are those of finite differences."""

from collections.abc import Callable

import torch
from torch import Tensor

from linbench.engine.layer_under_test import LayerUnderTest, UndeclaredError
from linbench.verify.laws import Found, law

LENGTH = 11
"""Length of sequences: a finite difference takes eight calls for every parameter."""

STEPS = {torch.float64: (1e-5, 1e-6, 1e-7, 1e-4, 1e-3), torch.float32: (1e-2, 1e-3, 1e-1)}
"""Steps of finite differences, relative to what is moved, the likeliest first.

A long one misses how a gradient turns, a short one drowns in rounding.
"""


@law("gradients", place=5)
def gradients(subject: LayerUnderTest) -> Found:
    """Gradients of the input and of every parameter are finite and those of finite differences.

    They are compared with the step that suits each best: to 1e-5 in float64, 1e-2 in float32. A parameter
    that has none is noted.
    """
    if subject.cls.gradient == "surrogate":
        raise UndeclaredError("it declares surrogate gradients, which finite differences do not give")
    if subject.precision not in STEPS:
        raise UndeclaredError(f"it computes in {subject.precision}, too coarse for finite differences")
    mixer, x = subject.build(), subject.tokens(LENGTH).requires_grad_()
    weights = subject.tokens(LENGTH, seed=1).double()
    leaves = {"the input": x, **{name: p for name, p in mixer.named_parameters() if p.requires_grad}}

    def loss() -> Tensor:
        return torch.sum(mixer(x).y.double() * weights)

    given = _gradients(loss(), leaves)
    if given["the input"] is None:
        return False, "the input has no gradient"
    errors = {
        name: _gradient_error(loss, leaves[name], gradient, subject)
        for name, gradient in given.items()
        if gradient is not None
    }
    worst = max(errors, key=errors.__getitem__)
    unused = [name for name, gradient in given.items() if gradient is None]
    note = f"; without gradient: {', '.join(unused)}" if unused else ""
    return errors[worst] <= subject.limit(1e-5, 1e-2), f"{worst} is off by {errors[worst]:.1e}{note}"


def _gradients(loss: Tensor, leaves: dict[str, Tensor]) -> dict[str, Tensor | None]:
    if not loss.requires_grad:
        return dict.fromkeys(leaves)
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return dict(zip(leaves, gradients, strict=True))


@torch.no_grad()
def _gradient_error(
    loss: Callable[[], Tensor], tensor: Tensor, gradient: Tensor, subject: LayerUnderTest
) -> float:
    """Return how far a gradient is from finite differences along a random direction, relative to its size.

    Of several steps the least error counts, as no step makes a wrong gradient right.
    """
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(tensor.shape, dtype=torch.float64, generator=generator).to(tensor)
    given, scale = float((gradient * direction).sum()), float(tensor.abs().mean().clamp(min=1e-2))
    least_size = max(float(gradient.norm() * direction.norm()) * 1e-2, 1e-12)
    least, start = float("inf"), tensor.clone()
    for relative in STEPS[subject.precision]:
        step = relative * scale
        near = _slope(loss, tensor, start, step * direction) / step
        far = _slope(loss, tensor, start, 2 * step * direction) / (2 * step)
        extrapolated = (
            4 * near - far
        ) / 3  # Richardson's: without the error that grows with the step squared
        for measured in (near, extrapolated):
            least = min(least, abs(given - measured) / max(abs(measured), least_size))
        if least <= subject.limit(1e-5, 1e-2):
            break
    return least


def _slope(loss: Callable[[], Tensor], tensor: Tensor, start: Tensor, move: Tensor) -> float:
    """Return half of what the loss gains from `move` back to `move` ahead; the tensor is then as before."""
    tensor.copy_(start + move)
    ahead = float(loss())
    tensor.copy_(start - move)
    back = float(loss())
    tensor.copy_(start)
    return (ahead - back) / 2
