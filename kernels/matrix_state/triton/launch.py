"""How the kernels are launched: a rule from shapes and device, never a timing at run time."""

from functools import cache
from typing import Literal, NamedTuple

import torch

FALLBACK_PROCESSORS = 64
"""Stands for the number of multiprocessors where there is no GPU to ask: in the interpreter."""


class Launch(NamedTuple):
    """chunk: tokens per chunk. key_block, value_block, walk_block: tile widths, the last of what one program of a walk takes of the values.

    warps and stages: (forward, backward) of the fused schedule; for the split one, (what walks, what does not).
    """

    schedule: Literal["fused", "split"]
    chunk: int
    key_block: int
    value_block: int
    walk_block: int
    warps: tuple[int, int] = (4, 4)
    stages: tuple[int, int] = (1, 1)


@cache
def rule(*, rows: int, length: int, key_dim: int, value_dim: int, wide: bool, update: str, decay: str, processors: int) -> Launch:
    """The launch for `rows` = B H recurrences over `length` tokens; `wide` is float32 instead of 16 bits.

    Fused when states are small enough for one program to hold state and gradient in registers, and there are enough rows to fill the
    device's `processors`; otherwise split over chunks. Chunks are as long as the tiles fit, and not longer than the sequence.
    """
    key_block, value_block = max(16, _power_of_two(key_dim)), max(16, _power_of_two(value_dim))
    widest = max(key_block, value_block)
    fused = widest <= 64 and (rows >= processors or length <= 64)
    longest = 32 if widest <= 128 else 16
    chunk = min(longest, max(16, _power_of_two(length)))
    if fused:
        return Launch("fused", chunk, key_block, value_block, value_block)
    return Launch("split", chunk, key_block, min(value_block, 64), min(value_block, 32 if key_block > 128 else 64))


@cache
def processors(device: torch.device) -> int:
    """How many programs the device runs side by side at the least."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else FALLBACK_PROCESSORS


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
