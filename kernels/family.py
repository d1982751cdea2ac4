"""The description of a kernel family for tools outside its folder: its `cases.py` declares it as `FAMILY`.

`linbench doctor`, `linbench bench ops`, `linbench bench train --profile`, `linbench list models` and the
tests of kernels find every family by `families()`. A new family is a folder beside this file, and no list
names it.
"""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor

import linbench.kernels as kernels
from linbench.common.scan import subpackage_names

Inputs = dict[str, Tensor]
Function = Callable[[Inputs], tuple[Tensor, ...]]


class KernelCase(NamedTuple):
    """A kernel on small inputs, beside the same mathematics written independently of it.

    Args:
        kernel: computes outputs from the inputs by name, by the kernel under test.
        reference: computes the same outputs in torch from inputs in float64.
        inputs: float64 and integer tensors on the CPU. Tools round the former to a precision and move all of
            them to a device; each of the former gets a gradient.
        differentiable: whether the kernel has gradients.
        at_least_float32: names of inputs that are never rounded to 16 bits, such as decays and states.
    """

    kernel: Function
    reference: Function
    inputs: Inputs
    differentiable: bool = True
    at_least_float32: Collection[str] = ()


Cases = Mapping[str, Mapping[str, Callable[[], KernelCase]]]
"""Functions that build each case of each kernel of a family, by the kernel's name and the case's."""


class Shape(NamedTuple):
    """Batch B, length T, heads H and head dimension D, of keys as of values."""

    B: int
    T: int
    H: int
    D: int

    def __str__(self) -> str:
        return "x".join(f"{name}{size}" for name, size in self._asdict().items())


class Operation(NamedTuple):
    """A function that is timed.

    Args:
        inputs: draws random inputs for a shape in a dtype on a device; floating-point ones get gradients.
        call: computes the output.
        flops: operations of the matrix products of forward. Backward has twice as many, two products for
            each.
        exact: computes the same in torch, for inputs in float64.
    """

    inputs: Callable[[Shape, torch.dtype, str], Inputs]
    call: Callable[[Inputs], Tensor]
    flops: Callable[[Shape], float]
    exact: Callable[[Inputs], Tensor] | None = None


class Family(NamedTuple):
    """A kernel family as tools see it.

    Args:
        cases: cases of its kernels that `linbench doctor` and the tests compare with float64.
        profile_kind: kind of work that its kernels are counted as in the profile of a training step.
        profile_names: parts of names by which the profiler's events are known as its own.
        gpu_cases: cases on a GPU, if these differ from those on a CPU.
        operations: operations that `linbench bench ops` times, by name.
        shown_with_models: whether `linbench list models` names it beside a model that computes with it: so
            recurrences and attention, and not what stands around them.
    """

    cases: Cases
    profile_kind: str
    profile_names: tuple[str, ...]
    gpu_cases: Cases | None = None
    operations: dict[str, Operation] = {}  # noqa: RUF012  # a tuple's field, which no one changes
    shown_with_models: bool = False


def families() -> dict[str, Family]:
    """Return every kernel family by the name of its folder, in the order of these names."""
    names = subpackage_names(kernels)
    return {name: import_module(f"{kernels.__name__}.{name}.cases").FAMILY for name in names}


def normal(*shape: int) -> Tensor:
    """Draw numbers from N(0, 1) in float64, the same every time for the same sizes."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def random_inputs(
    shape: Shape, dtype: torch.dtype, device: str, *, sizes: Callable[[Shape], dict[str, tuple[int, ...]]]
) -> Inputs:
    """Draw tensors from N(0, 1) for an operation that is timed.

    Args:
        sizes: returns the size of each tensor by name.
    """
    generator = torch.Generator(device).manual_seed(0)
    return {
        name: torch.randn(size, generator=generator, device=device).to(dtype)
        for name, size in sizes(shape).items()
    }


def no_products(shape: Shape) -> float:
    """Return the operations of matrix products in an elementwise kernel: none."""
    return 0.0
