"""The floating-point precision that a model computes in."""

from contextlib import AbstractContextManager
from typing import Literal

import torch

from linbench.common.errors import unknown

Precision = Literal["fp32", "bf16"]

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""The dtype of each precision, for kernels and layers that are run alone and compute in one dtype."""


def arithmetic(precision: Precision, device: str) -> AbstractContextManager[object]:
    """Return the context of a forward pass.

    bf16 computes matrix products in bfloat16, and sums, norms, decays and states in float32 (torch.autocast).
    """
    return torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=precision == "bf16")


def pick_precision(name: str | None, device: str) -> Precision:
    """Return the named precision, or the default of benchmarks: fp32 on a CPU and bf16 on a GPU.

    Raises UserError: there is no such precision.
    """
    precision_name = name or ("fp32" if device == "cpu" else "bf16")
    for precision in DTYPES:
        if precision == precision_name:
            return precision
    raise unknown("dtype", precision_name, DTYPES)
