"""The order in which groups of cells are handed to workers, so that all are busy to the end."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from linbench.engine.cost import flops
from linbench.engine.jobs import plugin_sources
from linbench.experiments.cell import Cell

SMALLEST_PART = 4
"""Cells of a part at least, if a group is divided: chosen, not measured. Fewer cells hardly train faster."""


_Urgency = tuple[bool, float]


class WaitingGroup(NamedTuple):
    """A group of cells, and the number of parts in which it is to be trained."""

    cells: Sequence[Cell]
    parts: int


class GroupQueue:
    """Groups that wait for a worker.

    If there are several devices, searches for learning rates come first, since other cells wait for them;
    then the groups with the most work, so that no long one is left for the end. If there are fewer groups
    than idle devices, the largest is divided among them.
    """

    def __init__(self, devices: int) -> None:
        """Make an empty queue. devices: GPUs, or workers on a CPU."""
        self.devices = devices
        self._waiting: list[tuple[_Urgency, Sequence[Cell]]] = []

    def add(self, groups: Iterable[Sequence[Cell]]) -> None:
        """Add groups. They keep their order if there is one device."""
        if self.devices == 1:
            self._waiting += [((False, 0.0), group) for group in groups]
        elif more := [(_urgency(group), group) for group in groups]:
            self._waiting = sorted(self._waiting + more, key=lambda waiting: waiting[0], reverse=True)

    def next(self, running: int) -> WaitingGroup | None:
        """Return the next group; None if none waits.

        Args:
            running: groups that are being trained now.
        """
        if not self._waiting:
            return None
        idle = self.devices - running
        _, group = self._waiting.pop(0)
        parts = min(idle - len(self._waiting), len(group) // SMALLEST_PART)
        return WaitingGroup(group, max(1, parts))


def divide(cells: Sequence[Cell], parts: int) -> list[list[Cell]]:
    """Divide cells into so many parts, equal but for one cell; into fewer if there are fewer cells."""
    parts = min(parts, len(cells))
    ends = [len(cells) * part // parts for part in range(parts + 1)] if parts else []
    return [list(cells[begin:end]) for begin, end in pairwise(ends)]


def _urgency(group: Sequence[Cell]) -> _Urgency:
    """Return what groups are ordered by: the greater, the sooner."""
    first = group[0]
    return first.purpose == "tuning", len(group) * _work(first)


def _work(cell: Cell) -> float:
    """Return about how many operations a cell takes; a layer that declares none counts as linear ones.

    Layers and tasks that linbench does not ship are not built for this: they may end the process.
    """
    known = None if plugin_sources(cell) else flops(cell)
    if known is not None:
        return known
    backbone = cell.model.backbone
    # a layer and its channel mixer have about 12 width^2 weights; each takes 6 operations a token in training
    return 72.0 * cell.model.depth * backbone.d_model**2 * cell.curriculum.tokens(cell.steps)
