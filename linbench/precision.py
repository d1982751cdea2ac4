"""In which numbers a model computes."""

from contextlib import AbstractContextManager
from typing import Literal

import torch

Precision = Literal["fp32", "bf16"]


def arithmetic(precision: Precision, device: str) -> AbstractContextManager[object]:
    """Around a forward pass. bf16: products of matrices in bfloat16, sums, norms, decays and states in float32, as torch.autocast has it."""
    return torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=precision == "bf16")
