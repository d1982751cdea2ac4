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

    def waiting(self) -> None:
        """Other launchers are at all that is left; said again and again."""

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

    def waiting(self) -> None:
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
                _settle(group, store, progress, results, partial(stands, again=again, retry=retry))
            left = [cell for cell in waiting if cell.id not in results]
            if len(left) == len(waiting):
                progress.waiting()
                time.sleep(_POLL_SECONDS)
            waiting = left
    finally:
        progress.end()
    return [results[cell.id] for cell in cells]


def _settle(group: Sequence[Cell], store: Store, progress: Progress, results: dict[str, Result], good: Callable[[Result | None], bool]) -> None:
    """Put into `results` what is `good` of these cells, and run the others, but for those that another launcher is at."""

    def done(cell: Cell, *, stored: bool) -> None:
        results[cell.id] = reported(cell, store)
        progress.finished(cell, results[cell.id], stored=stored)

    with ExitStack() as claims:
        ours = [cell for cell in group if claims.enter_context(store.claim(cell.id))]
        finished = [cell for cell in ours if good(store.get(cell.id))]
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


def reported(cell: Cell, store: Store) -> Result:
    """The result of a cell that has one: what is shown is what is kept. Raises StorageError: it is gone or altered."""
    result = store.get(cell.id)
    if result is None:
        raise StorageError(f"the result of {cell.id} was altered in {store.folder} while it was written; look for another program at work there.")
    if (result["purpose"], cell.purpose) == ("tuning", "report"):  # asked for once more, for another purpose
        result |= {"purpose": "report"}
        store.put(result)
    return result


def stands(result: Result | None, *, again: bool, retry: bool) -> bool:
    """Whether a stored result will do: not if cells are to be run `again`, nor, with `retry`, if it is none of the model's."""
    return result is not None and not again and (result["status"] in FINAL or not retry)
