"""Groups of cells side by side: a process for every GPU, or several on a CPU."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from linbench.cell import Cell
from linbench.common.errors import UserError
from linbench.groups import groups
from linbench.measure import blank
from linbench.runner import Progress, Silent, reported, run_cells, stands
from linbench.store import Result, Store
from linbench.train import Report
from linbench.workers import outcomes

SILENCE = 1800.0
"""Seconds after which a group that reports nothing is given up."""


class Pool(NamedTuple):
    """environments: variables for every worker. threads: of each. silence: seconds after which one that says nothing is ended."""

    environments: tuple[Mapping[str, str], ...]
    threads: int
    silence: float = SILENCE


class Job(NamedTuple):
    """A group for a worker."""

    cells: list[Cell]
    folder: Path
    again: bool
    retry: bool
    threads: int


def pool(device: str, workers: int | None, *, silence: float = SILENCE) -> Pool | None:
    """So many workers (None: as many as there are GPUs, or CPU cores) for cells on `device`; none where one would do.

    Raises UserError: more GPUs than there are.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if device == "cpu":
        count = workers or cores
        return Pool(({"OMP_NUM_THREADS": str(max(1, cores // count))},) * count, max(1, cores // count), silence) if count > 1 else None
    gpus = torch.cuda.device_count()
    count = workers or gpus
    if count > gpus:
        raise UserError(f"{count} workers need a GPU each; there are {gpus} here.")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
    return Pool(tuple({"CUDA_VISIBLE_DEVICES": visible[i]} for i in range(count)), max(1, cores // count), silence) if count > 1 else None


def run_pooled(
    cells: Sequence[Cell], store: Store, progress: Progress, *, workers: Pool | None, again: bool = False, retry: bool = True, stack: int | None = None
) -> list[Result]:
    """As `runner.run_cells`, by these workers. A group that is silent for too long is ended with all that it started, and its cells time out.

    Raises StorageError: results cannot be kept.
    """
    if workers is None:
        return run_cells(cells, store, progress, again=again, retry=retry, stack=stack)
    store.prepare()
    cells = list({cell.id: cell for cell in cells}.values())
    by_id, results = {cell.id: cell for cell in cells}, dict[str, Result]()
    progress.begin(cells)

    def hear(message: tuple[str, Any, Any]) -> None:
        what, of, more = message
        if what == "report":
            progress.report([by_id[name] for name in of], more)
        elif what == "finished":
            done(by_id[of], stored=more)

    def done(cell: Cell, *, stored: bool) -> None:
        results[cell.id] = reported(cell, store)
        progress.finished(cell, results[cell.id], stored=stored)

    try:
        for cell in cells:
            if stands(store.get(cell.id), again=again, retry=retry):
                done(cell, stored=True)
        waiting = groups([cell for cell in cells if cell.id not in results], largest=stack)
        jobs = [Job(group, store.folder, again, retry, workers.threads) for group in waiting]
        environments = workers.environments[: len(jobs)]
        for place, outcome in outcomes(work, jobs, workers=len(environments), seconds=workers.silence, tell=hear, environments=environments):
            for cell in jobs[place].cells:
                if cell.id not in results:
                    reason = f"said nothing for {workers.silence:.0f} s and was ended" if outcome.late else outcome.failure or "its worker lost it"
                    store.put(blank(cell, len(jobs[place].cells), None) | {"status": "timeout" if outcome.late else "failed", "reason": reason})
                    done(cell, stored=False)
    finally:
        progress.end()
    return [results[cell.id] for cell in cells]


def work(job: Job, tell: Callable[[Any], None]) -> None:
    """In a worker: run a group and keep its results."""
    torch.set_num_threads(job.threads)
    run_cells(job.cells, Store(job.folder), _Telling(tell), again=job.again, retry=job.retry, stack=len(job.cells))


class _Telling(Silent):
    """Says all to whoever started the worker."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self.tell = tell

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        self.tell(("report", [cell.id for cell in cells], report))

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        self.tell(("finished", cell.id, stored))

    def waiting(self) -> None:
        self.tell(("waiting", None, None))
