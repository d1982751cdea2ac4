"""A listener that adds up what a run takes in time and tokens."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from linbench.engine.meter import PARTS
from linbench.engine.progress import Progress, Report
from linbench.experiments.cell import Cell
from linbench.results.record import FINAL
from linbench.results.schema.cells import CellResult


class Spending:
    """A listener that adds up what a run takes and passes all on to another listener.

    Stored results cost nothing and are not counted.
    """

    def __init__(self, progress: Progress) -> None:
        """Start the clock. progress: the listener that hears all, too."""
        self.progress = progress
        self.parts = dict.fromkeys(PARTS, 0.0)
        """Seconds of workers by part."""
        self.tokens = 0
        """Tokens trained on, by all cells together."""
        self.outcomes = Counter[str]()
        """Cells that were run, by status."""
        self.seconds = 0.0
        """Seconds on the clock from the start to the last result so far."""
        self._began = time.perf_counter()

    @property
    def cells(self) -> int:
        """Cells that were run."""
        return self.outcomes.total()

    @property
    def failed(self) -> int:
        """Cells that were run and say nothing about their model."""
        return sum(count for status, count in self.outcomes.items() if status not in FINAL)

    def begin(self, cells: Sequence[Cell]) -> None:
        """Pass it on."""
        self.progress.begin(cells)

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        """Pass it on."""
        self.progress.report(cells, report)

    def finished(self, cell: Cell, result: CellResult, *, stored: bool) -> None:
        """Count a cell that was run."""
        self.seconds = time.perf_counter() - self._began
        if not stored:
            self.outcomes[result["status"]] += 1
        self.progress.finished(cell, result, stored=stored)

    def spent(self, cells: Sequence[Cell], seconds: Mapping[str, float], tokens: int) -> None:
        """Add up what a group took."""
        for part, taken in seconds.items():
            self.parts[part] += taken
        self.tokens += tokens
        self.progress.spent(cells, seconds, tokens)

    def end(self) -> None:
        """Pass it on."""
        self.progress.end()
