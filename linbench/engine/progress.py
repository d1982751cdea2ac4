"""Listeners to the progress of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from linbench.experiments.cell import Cell
from linbench.results.schema.cells import CellResult


@dataclass(frozen=True)
class Report:
    """The progress of a group in training, as means over its replicas.

    loss: mean since the last report. accuracy: the last one on the validation split, None before the first
    evaluation.
    """

    step: int
    steps: int
    loss: float
    accuracy: float | None
    tokens_per_second: float


class Progress(Protocol):
    """A listener to the progress of a run."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Hear of cells that will be run: once before the first, and whenever results lead to more."""

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        """Hear how the training of a group of cells is going."""

    def finished(self, cell: Cell, result: CellResult, *, stored: bool) -> None:
        """Hear of a cell's result. stored: it is from an earlier run."""

    def spent(self, cells: Sequence[Cell], seconds: Mapping[str, float], tokens: int) -> None:
        """Hear what the work on a group took, once, when it is over.

        It is not told of a group whose worker was lost.

        Args:
            cells: the group.
            seconds: by part, as `linbench.engine.meter.PARTS` names them.
            tokens: trained on, summed over replicas.
        """

    def end(self) -> None:
        """Hear that the run is over or was broken off."""


class NoProgress:
    """A listener that shows nothing."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Do nothing."""

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        """Do nothing."""

    def finished(self, cell: Cell, result: CellResult, *, stored: bool) -> None:
        """Do nothing."""

    def spent(self, cells: Sequence[Cell], seconds: Mapping[str, float], tokens: int) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""
