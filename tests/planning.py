"""Cells of a run in one call, for tests."""

from collections.abc import Sequence
from typing import Any

from linbench.experiments import plan as planning
from linbench.experiments.cell import Cell
from linbench.experiments.run_spec import RunSpec


def plan(task: str, models: Sequence[str], **more: Any) -> list[Cell]:
    """Return the cells of a run; `more`: other fields of its `RunSpec`."""
    return planning.plan(RunSpec(task, models, **more))
