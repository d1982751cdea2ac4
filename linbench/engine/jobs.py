"""Jobs: what an executor is given to do, and the messages that come back."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from linbench.engine.checkpoint import Checkpoints, composition
from linbench.engine.measure import measure
from linbench.engine.meter import Meter
from linbench.engine.progress import Report
from linbench.engine.step import Training
from linbench.engine.trunk import Trunks
from linbench.experiments.cell import Cell
from linbench.results.schema.cells import CellResult


class Job(NamedTuple):
    """Cells that train together.

    wanted: ids of the cells whose results are missing; the others are in the checkpoint that the job goes on
    from. checkpoints: the folder for checkpoints, None for none. resumes: name of the checkpoint to go on
    from, if there is one.
    """

    cells: list[Cell]
    wanted: list[str]
    checkpoints: Path | None
    resumes: str | None = None

    @property
    def name(self) -> str:
        """The name of its checkpoint."""
        return self.resumes or composition(self.cells)


class Reported(NamedTuple):
    """A report on the training of the cells with these ids."""

    cells: list[str]
    report: Report


class Spent(NamedTuple):
    """Seconds, by part, and tokens trained on, of the work on the cells with these ids."""

    cells: list[str]
    seconds: Mapping[str, float]
    tokens: int


Message = Reported | Spent | CellResult


def plugin_sources(cell: Cell) -> frozenset[str]:
    """Return the files, modules and packages outside linbench that a cell's task and layers come from."""
    entries = (cell.task_entry, *(layer.entry for layer in cell.model.layers))
    return frozenset(_without_class(entry.source) for entry in entries if not entry.shipped)


def isolation_key(job: Job) -> frozenset[str] | None:
    """Return what a worker process must have in common with a job to be given it.

    These are the plugins of the job, which may change anything else in their process; None without plugins.
    """
    return frozenset().union(*(plugin_sources(cell) for cell in job.cells)) or None


def _without_class(source: str) -> str:
    """Return the file or module of a source: `./mine.py:Mine` and `mine.py` are one file."""
    path, py, _ = source.partition(".py")
    return str(Path(path + py).resolve()) if py else source.partition(":")[0]


def work(job: Job, tell: Callable[[Message], None]) -> None:
    """Train and evaluate the cells of a job; tell reports and results as they come, then what all that took.

    Raises StorageError: checkpoints cannot be kept.
    """
    names, meter = [cell.id for cell in job.cells], Meter()

    def on_report(report: Report) -> None:
        tell(Reported(names, report))

    if job.checkpoints is None:
        results = measure(job.cells, on_report, meter=meter)
    else:
        checkpoints = Checkpoints(job.checkpoints)
        checkpoint = checkpoints.read(job.name, names) if job.resumes else None
        trunks = Trunks(job.checkpoints)

        def on_checkpoint(training: Training) -> None:
            checkpoints.save_if_due(training, group=job.name)
            trunks.save_if_due(training)

        results = measure(
            job.cells,
            on_report,
            on_checkpoint=on_checkpoint,
            checkpoint=checkpoint,
            trunks=trunks,
            meter=meter,
        )
    for result in results:
        tell(result)
    tell(Spent(names, meter.seconds, meter.tokens))
