"""In which numbers a model computes."""

from contextlib import AbstractContextManager
from typing import Literal

import torch

from linbench.common.errors import unknown

Precision = Literal["fp32", "bf16"]

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Of what is computed in one of them throughout, where kernels and layers are alone."""


def arithmetic(precision: Precision, device: str) -> AbstractContextManager[object]:
    """Around a forward pass. bf16: products of matrices in bfloat16, sums, norms, decays and states in
    float32, as torch.autocast has it."""
    return torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=precision == "bf16")


def pick_precision(name: str | None, device: str) -> Precision:
    """The one that is named; else fp32 on a CPU and bf16 on a GPU, as benchmarks have it. Raises UserError:
    there is no such precision."""
    wanted = name or ("fp32" if device == "cpu" else "bf16")
    for precision in DTYPES:
        if precision == wanted:
            return precision
    raise unknown("dtype", wanted, DTYPES)
