"""Cells to train, and what is heard of their training, for tests."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linbench.engine.progress import NoProgress, Report
from linbench.experiments import plan as planning
from linbench.experiments.cell import Cell
from linbench.experiments.run_spec import RunSpec
from linbench.results.schema import Result

SEQ_LEN = 16


def tiny_settings(steps: int = 10, *, batch_size: int = 4, examples: int = 8) -> dict[str, Any]:
    """Return settings of mqar, model and protocol with which a cell trains in a fraction of a second.

    Args:
        steps: training steps.
        batch_size: examples of a step.
        examples: examples of validation and test.
    """
    return {
        "protocol.batch_size": batch_size,
        "protocol.tokens": steps * batch_size * SEQ_LEN,
        "protocol.validation_examples": examples,
        "protocol.test_examples": examples,
        "protocol.evaluations": 5,
        "model.d_model": 16,
        "task.seq_len": SEQ_LEN,
        "task.kv_pairs": 2,
        "task.vocab_size": 16,
    }


def plan(task: str, models: Sequence[str], **more: Any) -> list[Cell]:
    """Return the cells of a run; `more`: other fields of its `RunSpec`."""
    return planning.plan(RunSpec(task, models, **more))


def build_cells(
    *models: str, seeds: Sequence[int] = (0, 1), settings: Mapping[str, Any], device: str = "cpu"
) -> list[Cell]:
    """Return cells of mqar for each model and seed."""
    return plan("mqar", list(models), device=device, seeds=seeds, settings=settings)


def measured(results: Sequence[Result]) -> list[Any]:
    """Return all that was measured of cells, without how long it took."""
    names = ("id", "status", "reason", "metrics", "slices", "curve", "marks")
    return [{name: result[name] for name in names} for result in results]


class RecordingProgress(NoProgress):
    """A listener that notes what it hears.

    steps: the steps that were reported, by cell id. done: id, status and whether it was stored, of each
    finished cell. groups_over: the ids of each group that told what it took. on_report: called after each
    report.
    """

    def __init__(self, on_report: Callable[[], None] = lambda: None) -> None:
        self.on_report = on_report
        self.steps: dict[str, list[int]] = {}
        self.done: list[tuple[str, str, bool]] = []
        self.groups_over: list[list[str]] = []

    def report(self, cells: Sequence[Cell], report: Report) -> None:
        for cell in cells:
            self.steps.setdefault(cell.id, []).append(report.step)
        self.on_report()

    def finished(self, cell: Cell, result: Result, *, stored: bool) -> None:
        self.done.append((cell.id, result["status"], stored))

    def spent(self, cells: Sequence[Cell], seconds: Mapping[str, float], tokens: int) -> None:
        self.groups_over.append([cell.id for cell in cells])

    @property
    def done_ids(self) -> list[str]:
        """The ids of finished cells."""
        return [name for name, _, _ in self.done]

    @property
    def steps_of_running(self) -> list[int]:
        """The last step of each cell that has begun and is not finished."""
        return [steps[-1] for name, steps in self.steps.items() if name not in self.done_ids]

    @property
    def begun_again(self) -> list[str]:
        """The ids of cells that reported a step twice."""
        return [name for name, steps in self.steps.items() if len(set(steps)) < len(steps)]
