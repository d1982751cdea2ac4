"""What is handed to whoever measures, and what comes back."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from linbench.cell import Cell
from linbench.checkpoint import Checkpoints, composition
from linbench.measure import measure
from linbench.store import Result
from linbench.train import Report


class Job(NamedTuple):
    """Cells that train together. wanted: those whose results are missing; the others are in the checkpoint that the job `resumes`.
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


def work(job: Job, tell: Callable[[Message], None]) -> None:
    """Measure the cells of a job, and tell all that is found as it comes. Raises StorageError: checkpoints cannot be kept."""
    names = [cell.id for cell in job.cells]

    def on_report(report: Report) -> None:
        tell(Reported(names, report))

    if job.checkpoints is None:
        found = measure(job.cells, on_report)
    else:
        checkpoints = Checkpoints(job.checkpoints)
        checkpoint = checkpoints.read(job.name, names) if job.resumes else None
        found = measure(job.cells, on_report, on_rest=partial(checkpoints.rest, group=job.name), checkpoint=checkpoint)
    for result in found:
        tell(result)
