"""Who wants to know how a run is getting on, and the report of a training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from linbench.experiments.cell import Cell
from linbench.results.record import Result


@dataclass(frozen=True)
class Report:
    """How a group is getting on, as means over its replicas: `loss` since the last report, `accuracy` the
    last on the validation split."""

    step: int
    steps: int
    loss: float
    accuracy: float | None
    tokens_per_second: float


class Progress(Protocol):
    """Who wants to know how a run is getting on."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Before the first cell, and before more that follow from results."""

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        """While cells train, together."""

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        """A cell has its result; `stored`: from an earlier run."""

    def end(self) -> None:
        """After the last cell, or when the run is broken off."""


class Silent:
    """Nobody wants to know."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Nothing."""

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        """Nothing."""

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""
