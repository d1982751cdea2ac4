"""The law of gradients: they are those of finite differences."""

from collections.abc import Callable

import torch
from torch import Tensor

from linbench.engine.layer_under_test import Subject, UndeclaredError

STEPS = {torch.float64: (1e-5, 1e-6, 1e-7, 1e-4, 1e-3), torch.float32: (1e-2, 1e-3, 1e-1)}
"""Of finite differences, relative to what is moved, the likeliest first: a long one misses how a gradient
turns, a short one drowns in rounding."""


def gradients(subject: Subject) -> tuple[bool, str]:
    """Gradients of the input and of every parameter are finite and those of finite differences, with the step
    that suits each best: to 1e-5 in float64, 1e-2 in float32. A parameter that has none is noted."""
    if subject.precision not in STEPS:
        raise UndeclaredError(f"it computes in {subject.precision}, too coarse for finite differences")
    mixer, x = subject.build(), subject.tokens(11).requires_grad_()
    weigh = subject.tokens(11, seed=1).double()
    trained = {"the input": x, **{name: p for name, p in mixer.named_parameters() if p.requires_grad}}

    def loss() -> Tensor:
        return torch.sum(mixer(x).y.double() * weigh)

    value = loss()
    told = (
        torch.autograd.grad(value, list(trained.values()), allow_unused=True)
        if value.requires_grad
        else [None] * len(trained)
    )
    found = dict(zip(trained, told, strict=True))
    if found["the input"] is None:
        return False, "the input has no gradient"
    errors = {
        name: _gradient_error(loss, trained[name], gradient, subject)
        for name, gradient in found.items()
        if gradient is not None
    }
    worst = max(errors, key=lambda name: errors[name])
    unused = [name for name, gradient in found.items() if gradient is None]
    note = f"; without gradient: {', '.join(unused)}" if unused else ""
    return errors[worst] <= subject.limit(1e-5, 1e-2), f"{worst} is off by {errors[worst]:.1e}{note}"


@torch.no_grad()
def _gradient_error(loss: Callable[[], Tensor], tensor: Tensor, gradient: Tensor, subject: Subject) -> float:
    """Return how far a gradient is from finite differences along a random way, relative to its size: of
    several steps the least, as no step makes a wrong gradient right."""
    way = torch.randn(tensor.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(
        tensor
    )
    told, scale = float((gradient * way).sum()), float(tensor.abs().mean().clamp(min=1e-2))
    least, start = float("inf"), tensor.clone()
    for relative in STEPS[subject.precision]:
        near, far = (
            _slope(loss, tensor, start, factor * relative * scale * way) / (factor * relative * scale)
            for factor in (1, 2)
        )
        # the latter, Richardson's, without the error that grows with the step squared
        for measured in (near, (4 * near - far) / 3):
            size = max(abs(measured), float(gradient.norm() * way.norm()) * 1e-2, 1e-12)
            least = min(least, abs(told - measured) / size)
        if least <= subject.limit(1e-5, 1e-2):
            break
    return least


def _slope(loss: Callable[[], Tensor], tensor: Tensor, start: Tensor, move: Tensor) -> float:
    """Return half of what the loss gains from `move` back to `move` ahead; the tensor is as it was then."""
    tensor.copy_(start + move)
    ahead = float(loss())
    tensor.copy_(start - move)
    back = float(loss())
    tensor.copy_(start)
    return (ahead - back) / 2
