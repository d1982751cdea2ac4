"""Groups of cells that train together as one program, and their size."""

from collections.abc import Sequence

import torch

from linbench.common.hashing import digest
from linbench.experiments.cell import Cell
from linbench.experiments.device import Elsewhere

_REPLICA_SETTINGS = ("lr", "weight_decay")
"""Settings of the protocol that may differ among the replicas of a stack, besides the seed."""

_CPU_NUMBERS = 1 << 16
"""Activations per layer up to which a CPU is bound by the number of operations, not by their arithmetic.

They are batch x length x width. The figure is an estimate.
"""

_MEMORY_SHARE = 0.6
"""Share of a GPU's memory that a stack may fill. An estimate: a stack that does not fit is halved."""

_ACTIVATIONS = 64
"""Numbers that a layer keeps for the backward pass, per token and unit of width. An estimate, as above."""

_LARGEST = 64
"""Cells of one group, at most."""


def groups(cells: Sequence[Cell], *, largest: int | None = None, sharing: int = 1) -> list[list[Cell]]:
    """Return groups of cells that can train together: they differ in seed, learning rate and weight decay.

    Args:
        cells: their order is kept.
        largest: cells of a group, at most; None for as many as suit the device.
        sharing: groups that will share a GPU.
    """
    by_structure: dict[str, list[Cell]] = {}
    for cell in cells:
        by_structure.setdefault(_structure(cell), []).append(cell)
    divided = []
    for members in by_structure.values():
        size = largest or stack_size(members[0], sharing=sharing)
        divided += [members[start : start + size] for start in range(0, len(members), size)]
    return divided


def stack_size(cell: Cell, *, sharing: int = 1) -> int:
    """Return how many cells like this one should train together, by their shapes and the device's memory.

    Args:
        cell: one of the cells.
        sharing: groups that share the GPU's memory equally.
    """
    longest = max(segment.task.seq_len for segment in cell.trained_on)
    numbers = cell.protocol.batch_size * longest * cell.model.backbone.d_model
    if cell.device == "cpu":
        return max(1, min(_LARGEST, _CPU_NUMBERS // numbers))
    if isinstance(cell.device, Elsewhere):  # its memory is not known here
        return _LARGEST
    memory = torch.cuda.get_device_properties(cell.device).total_memory
    needed = 4 * numbers * _ACTIVATIONS * cell.model.depth
    return max(1, min(_LARGEST, int(_MEMORY_SHARE * memory) // (sharing * needed)))


def _structure(cell: Cell) -> str:
    """Return a digest of everything that must be equal in a group."""
    identity = cell.identity
    settings = identity["protocol"]["settings"]
    shared = {name: value for name, value in settings.items() if name not in _REPLICA_SETTINGS}
    return digest(
        {**identity, "seed": None, "protocol": shared, "label": cell.model.label, "device": cell.device}
    )
