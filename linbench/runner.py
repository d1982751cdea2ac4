"""Many cells, group by group: finished ones are not repeated, and no cell's fault stops the others."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Protocol

from linbench.cell import Cell
from linbench.checkpoint import Checkpoint, Checkpoints, composition
from linbench.common.errors import StorageError
from linbench.groups import groups
from linbench.measure import measure
from linbench.store import FINAL, Result, Store
from linbench.train import Report

_POLL_SECONDS = 0.5


class Progress(Protocol):
    """Who wants to know how a run is getting on."""

    def begin(self, cells: Sequence[Cell]) -> None:
        """Before the first cell."""

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


def run_cells(cells: Sequence[Cell], store: Store, progress: Progress, *, again: bool = False, retry: bool = True, stack: int | None = None) -> list[Result]:
    """The results of `cells`, in their order and each once; each is kept as soon as it is there. `again` repeats finished ones, `retry`
    those that failed.

    Cells that differ in seed, learning rate and weight decay alone train together, at most `stack` of them (None: as many as suit the
    device). Several launchers may work on one folder: each cell is run by whoever claims it first. A group that was broken off
    goes on from its last checkpoint.
    Raises StorageError: results cannot be kept.
    """
    store.prepare()
    results: dict[str, Result] = {}
    cells = list({cell.id: cell for cell in cells}.values())
    progress.begin(cells)
    try:
        waiting = list(cells)
        while waiting:
            for group in groups(waiting, largest=stack):
                _settle(group, store, progress, results, lambda result: not again and _is_final(result, retry))
            left = [cell for cell in waiting if cell.id not in results]
            if len(left) == len(waiting):
                time.sleep(_POLL_SECONDS)
            waiting = left
    finally:
        progress.end()
    return [results[cell.id] for cell in cells]


def _settle(group: Sequence[Cell], store: Store, progress: Progress, results: dict[str, Result], stands: Callable[[Result | None], bool]) -> None:
    """Put into `results` what stands of these cells, and run the others, but for those that another launcher is at."""

    def done(cell: Cell, *, stored: bool) -> None:
        result = store.get(cell.id)  # what is shown is what is kept
        if result is not None and (result["purpose"], cell.purpose) == ("tuning", "report"):
            result |= {"purpose": "report"}  # asked for once more, for another purpose
            store.put(result)
        if result is None:
            raise StorageError(f"the result of {cell.id} was altered in {store.folder} while it was written; look for another program at work there.")
        results[cell.id] = result
        progress.finished(cell, result, stored=stored)

    with ExitStack() as claims:
        ours = [cell for cell in group if claims.enter_context(store.claim(cell.id))]
        finished = [cell for cell in ours if stands(store.get(cell.id))]
        for cell in finished:
            done(cell, stored=True)
        missing = {cell.id: cell for cell in ours if cell not in finished}

        def run(cells: Sequence[Cell], name: str, checkpoint: Checkpoint | None = None) -> None:
            on_report, on_rest = partial(progress.report, cells), partial(checkpoints.rest, group=name)
            for result in measure(cells, on_report, on_rest=on_rest, checkpoint=checkpoint):
                if result["id"] in missing:
                    store.put(result)
                    done(missing[result["id"]], stored=False)
            checkpoints.forget(name)

        checkpoints = Checkpoints(store.checkpoints)
        for name, cells, checkpoint in checkpoints.of(group, missing):
            run(cells, name, checkpoint)
        if left := [cell for cell in missing.values() if cell.id not in results]:
            run(left, composition(left))


def _is_final(result: Result | None, retry: bool) -> bool:
    """What failed once may not fail again, if it is to be tried again."""
    return result is not None and (result["status"] in FINAL or not retry)
