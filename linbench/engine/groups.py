"""Which cells train together as one program, and how many."""

from collections.abc import Sequence

import torch

from linbench.common.hashing import digest
from linbench.experiments.cell import Cell

_OWN = ("lr", "weight_decay")
"""Settings of the protocol that replicas of one stack may have of their own, beside the seed."""

_CPU_NUMBERS = 1 << 16
"""Activations per layer (batch x length x width) up to which a CPU is bound by the number of operations, not
by their arithmetic."""

_SHARE = 0.6
"""Of a GPU's memory that a stack may fill, by estimate."""

_ACTIVATIONS = 64
"""Numbers that a layer keeps for backward per token and unit of width, by estimate; a stack that does not fit
is halved."""

_LARGEST = 64


def groups(cells: Sequence[Cell], *, largest: int | None = None, sharing: int = 1) -> list[list[Cell]]:
    """Cells that differ in seed, learning rate and weight decay alone, together, as many as fit where
    `sharing` such groups share a GPU, or at most `largest`; in their order."""
    alike: dict[str, list[Cell]] = {}
    for cell in cells:
        alike.setdefault(_structure(cell), []).append(cell)
    found = []
    for members in alike.values():
        size = largest or stack_size(members[0], sharing=sharing)
        found += [members[start : start + size] for start in range(0, len(members), size)]
    return found


def stack_size(cell: Cell, *, sharing: int = 1) -> int:
    """How many such cells train well together, from shapes and the device's total memory, of which each of
    those that share it has its part."""
    longest = max(segment.task.seq_len for segment in cell.trained_on)
    numbers = cell.protocol.batch_size * longest * cell.model.backbone.d_model
    if cell.device == "cpu":
        return max(1, min(_LARGEST, _CPU_NUMBERS // numbers))
    memory = torch.cuda.get_device_properties(cell.device).total_memory
    needed = 4 * numbers * _ACTIVATIONS * len(cell.model.layers)
    return max(1, min(_LARGEST, int(_SHARE * memory) // (sharing * needed)))


def _structure(cell: Cell) -> str:
    identity = cell.identity
    shared = {name: value for name, value in identity["protocol"]["settings"].items() if name not in _OWN}
    return digest(
        {**identity, "seed": None, "protocol": shared, "label": cell.model.label, "device": cell.device}
    )
