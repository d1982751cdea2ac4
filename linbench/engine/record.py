"""The record of a cell: the fields of a result before and after the cell was trained."""

import math
from typing import Any

from typing_extensions import TypedDict

from linbench.engine.evaluate import EvaluationResult, TestMetrics
from linbench.engine.step import Run
from linbench.experiments.cell import SCHEMA, Cell, mean_chance, mean_optimum
from linbench.models.base import StateSize
from linbench.results.environment import environment
from linbench.results.schema.cells import BuiltModel, CellResult, Metrics, Slices, State, TakenTest
from linbench.results.schema.fields import STATUSES
from linbench.tasks.base import Task


def new_record(cell: Cell, stacked: int, note: str | None) -> CellResult:
    """Return the record of a cell that is not measured yet.

    Args:
        stacked: number of cells that train together.
        note: the reason why no more of them do, if there is one.
    """
    identity: Any = cell.identity  # `misfit` checks it against its type when the result is stored
    record: CellResult = {
        "schema": SCHEMA,
        "id": cell.id,
        "label": cell.model.label,
        "preset": cell.preset,
        "purpose": cell.purpose,
        "search": None,
        "cell": identity,
        "scoring": cell.task.scoring,
        "chance": cell.chance,
        "optimum": cell.optimum,
        "status": "ok",
        "reason": None,
        "outside": False,
        "marks": [],
        "metrics": {},
        "slices": {},
        "curve": [],
        "model": {},
        "seconds": 0.0,
        "stack": {"size": stacked, "note": note},
        "environment": environment(cell.device),
    }
    if len(cell.tests) > 1:
        record["tests"] = [_test_record(test, TestMetrics({}, {})) for test in cell.tests]
    if cell.validated_on != cell.tested_on:
        record["validation"] = {
            "tests": [cell.tests.index(test) for test in cell.validated_on],
            "chance": mean_chance(cell.validated_on),
            "optimum": mean_optimum(cell.validated_on),
        }
    return record


def _test_record(test: Task, measured: TestMetrics) -> TakenTest:
    settings: Any = test.settings.model_dump(mode="json")
    return {
        "settings": settings,
        "seq_len": test.seq_len,
        "chance": test.chance(),
        "metrics": measured.metrics,
        "slices": measured.slices,
    }


class FinalFields(TypedDict, total=False):
    """The fields of a record that say how its cell ended."""

    status: STATUSES
    reason: str | None
    outside: bool
    metrics: Metrics
    slices: Slices
    tests: list[TakenTest]


def final_fields(run: Run, evaluation: EvaluationResult | None) -> FinalFields:
    """Return the fields of a record that say how a run ended; without an evaluation it diverged."""
    if evaluation is None:
        return {"status": "diverged", "reason": run.diverged}
    metrics, tests = evaluation.metrics, evaluation.tests
    loss = metrics[run.cell.task.loss]
    if not math.isfinite(loss):
        return {"status": "diverged", "reason": f"the test loss was {loss}"}
    if len(tests) == 1:
        return {"metrics": metrics, "slices": tests[0].slices}
    records = [_test_record(task, measured) for task, measured in zip(run.cell.tests, tests, strict=True)]
    return {"metrics": metrics, "tests": records}


def model_size(cell: Cell, model: Any) -> BuiltModel:
    """Return the field `model` of a record: parameters, floats of state, and FLOPs per token.

    The FLOPs are those of the longest test.
    """
    test = cell.longest_test
    state: StateSize | None = model.state_size(test.seq_len)
    return {
        "parameters": model.parameter_count(),
        "state": None if state is None else _state_record(state),
        "flops_per_token": model.flops_per_token(test.seq_len, test.answers),
    }


def _state_record(state: StateSize) -> State:
    return {
        "recurrent": state.recurrent,
        "cache": state.cache,
        "convolution": state.convolution,
        "shift": state.shift,
        "total": state.total,
    }
