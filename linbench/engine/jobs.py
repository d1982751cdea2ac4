"""What is handed to whoever measures, and what comes back."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from linbench.engine.checkpoint import Checkpoints, composition
from linbench.engine.measure import measure
from linbench.engine.progress import Report
from linbench.experiments.cell import Cell
from linbench.experiments.registry import SHIPPED
from linbench.results.record import Result


class Job(NamedTuple):
    """Cells that train together. wanted: those whose results are missing; the others are in the checkpoint
    that the job `resumes`.
    checkpoints: the folder to keep more in, or None."""

    cells: list[Cell]
    wanted: list[str]
    checkpoints: Path | None
    resumes: str | None = None

    @property
    def name(self) -> str:
        """Of its checkpoints."""
        return self.resumes or composition(self.cells)


class Reported(NamedTuple):
    """How the training of these cells is getting on."""

    cells: list[str]
    report: Report


Message = Reported | Result


def plugin_sources(cell: Cell) -> frozenset[str]:
    """Return the files, modules and packages of other people that a cell's task and layers come from; empty
    where linbench ships all of them."""
    entries = (cell.task_entry, *(layer.entry for layer in cell.model.layers))
    return frozenset(_home(entry.source) for entry in entries if entry.source != SHIPPED)


def isolation_key(job: Job) -> frozenset[str] | None:
    """Return what a process has to be given up to that does this job: code of other people, which may change
    whatever else computes there. None: nothing."""
    return frozenset().union(*map(plugin_sources, job.cells)) or None


def _home(source: str) -> str:
    """`./mine.py:Mine` and `mine.py` are one file."""
    path, py, _ = source.partition(".py")
    return str(Path(path + py).resolve()) if py else source.partition(":")[0]


def work(job: Job, tell: Callable[[Message], None]) -> None:
    """Measure the cells of a job, and tell all that is found as it comes. Raises StorageError: checkpoints
    cannot be kept."""
    names = [cell.id for cell in job.cells]

    def on_report(report: Report) -> None:
        tell(Reported(names, report))

    if job.checkpoints is None:
        found = measure(job.cells, on_report)
    else:
        checkpoints = Checkpoints(job.checkpoints)
        checkpoint = checkpoints.read(job.name, names) if job.resumes else None
        found = measure(
            job.cells, on_report, on_rest=partial(checkpoints.rest, group=job.name), checkpoint=checkpoint
        )
    for result in found:
        tell(result)
