"""Many cells, one after another: finished ones are not repeated, and no cell's fault stops the others."""

import time
from collections.abc import Sequence
from typing import Protocol

from linbench.cell import Cell
from linbench.common.errors import StorageError
from linbench.measure import measure
from linbench.store import FINAL, Result, Store
from linbench.train import Report

_POLL_SECONDS = 0.5


class Progress(Protocol):
    """Who wants to know how a run is getting on."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Before the first cell."""

    def report(self, cell: Cell, report: Report) -> None:
        """While a cell trains."""

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        """A cell has its result; `stored`: from an earlier run."""

    def end(self) -> None:
        """After the last cell, or when the run is broken off."""


class Silent:
    """Nobody wants to know."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Nothing."""

    def report(self, cell: Cell, report: Report) -> None:
        """Nothing."""

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


def run_cells(cells: Sequence[Cell], store: Store, progress: Progress, *, again: bool = False) -> list[Result]:
    """The results of `cells`, in their order and each once; each is kept as soon as it is there. `again` repeats finished ones.

    Several launchers may work on one folder: each cell is run by whoever claims it first.
    Raises StorageError: results cannot be kept.
    """
    store.prepare()
    results: dict[str, Result] = {}
    cells = list({cell.id: cell for cell in cells}.values())
    progress.begin(cells)
    try:
        waiting = list(cells)
        while waiting:
            elsewhere = [cell for cell in waiting if not _settle(cell, store, progress, results, again)]
            if len(elsewhere) == len(waiting):
                time.sleep(_POLL_SECONDS)
            waiting = elsewhere
    finally:
        progress.end()
    return [results[cell.id] for cell in cells]


def _settle(cell: Cell, store: Store, progress: Progress, results: dict[str, Result], again: bool) -> bool:
    """Whether the cell has its result now; not if another launcher is at it."""
    with store.claim(cell.id) as ours:
        if not ours:
            return False
        stored = None if again else store.get(cell.id)
        if stored is not None and stored["status"] not in FINAL:
            stored = None  # what failed once may not fail again
        if stored is None:
            store.put(measure(cell, lambda report: progress.report(cell, report)))
        result = stored or store.get(cell.id)  # what is shown is what is kept
        if result is None:
            raise StorageError(f"the result of {cell.id} was altered in {store.folder} while it was written; look for another program at work there.")
    results[cell.id] = result
    progress.finished(cell, result, stored=stored is not None)
    return True
