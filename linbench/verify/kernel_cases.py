"""Cases of every kernel family, ready for a device and a precision."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.family import KernelCase, families

Build = Callable[[torch.dtype], KernelCase]


def all_cases(device: str) -> dict[str, dict[str, Build]]:
    """Return how to build each case of each kernel, by the kernel's name and the case's.

    Args:
        device: cpu or cuda:N, where the inputs will be.

    Returns: functions from the dtype of the inputs to a case.
    """
    by_kernel: dict[str, dict[str, Build]] = {}
    for family in families().values():
        cases = family.cases if device == "cpu" or family.gpu_cases is None else family.gpu_cases
        for kernel, builders in cases.items():
            by_kernel[kernel] = {name: partial(_build, build, device) for name, build in builders.items()}
    return by_kernel


def _build(build: Callable[[], KernelCase], device: str, dtype: torch.dtype) -> KernelCase:
    case = build()

    def placed(name: str, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x.to(device)
        return x.to(device, at_least_float32(dtype) if name in case.at_least_float32 else dtype)

    return case._replace(inputs={name: placed(name, x) for name, x in case.inputs.items()})
