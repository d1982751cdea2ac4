"""The record of a cell: the fields of a result before and after the cell was trained."""

import math
from typing import Any

from linbench.engine.evaluate import EvaluationResult
from linbench.engine.step import Curve, Run
from linbench.experiments.cell import SCHEMA, Cell
from linbench.results.environment import environment
from linbench.results.record import UNDERTRAINED, Result

UNDERTRAINED_GAIN = 0.01
"""Gain in accuracy over the last fifth of a run above which the run is marked: it has not shown what it can
do. A convention of linbench."""


def new_record(cell: Cell, stacked: int, note: str | None) -> Result:
    """Return the record of a cell that is not measured yet.

    Args:
        stacked: number of cells that train together.
        note: the reason why no more of them do, if there is one.
    """
    return {
        "schema": SCHEMA,
        "id": cell.id,
        "label": cell.model.label,
        "preset": cell.preset,
        "purpose": cell.purpose,
        "search": None,
        "cell": cell.identity,
        "scoring": cell.task.scoring,
        "chance": cell.chance,
        "status": "ok",
        "reason": None,
        "outside": False,
        "marks": [],
        "metrics": {},
        "slices": {},
        **({"tests": _new_tests(cell)} if len(cell.tests) > 1 else {}),
        "curve": [],
        "model": {},
        "seconds": 0.0,
        "stack": {"size": stacked, "note": note},
        "environment": environment(cell.device),
    }


def _new_tests(cell: Cell) -> list[dict[str, Any]]:
    return [
        {
            "settings": test.settings.model_dump(mode="json"),
            "seq_len": test.seq_len,
            "chance": test.chance(),
            "metrics": {},
            "slices": {},
        }
        for test in cell.tests
    ]


def final_fields(run: Run, evaluation: EvaluationResult | None) -> dict[str, Any]:
    """Return the fields of a record that say how a run ended; without an evaluation it diverged."""
    if evaluation is None:
        return {"status": "diverged", "reason": run.diverged}
    metrics, tests = evaluation.metrics, evaluation.tests
    loss = metrics[run.cell.task.loss]
    if not math.isfinite(loss):
        return {"status": "diverged", "reason": f"the test loss was {loss}"}
    marks = [UNDERTRAINED] if not run.stopped and undertrained(run.curve) else []
    if len(tests) == 1:
        return {"metrics": metrics, "slices": tests[0].slices, "marks": marks}
    records = [record | test._asdict() for record, test in zip(_new_tests(run.cell), tests, strict=True)]
    return {"metrics": metrics, "tests": records, "marks": marks}


def undertrained(curve: Curve) -> bool:
    """Return whether validation accuracy rose by more than `UNDERTRAINED_GAIN` in the last fifth of a run."""
    before_last_fifth = curve[len(curve) * 4 // 5 - 1]
    return curve[-1]["accuracy"] - before_last_fifth["accuracy"] > UNDERTRAINED_GAIN


def model_size(cell: Cell, model: Any) -> dict[str, Any]:
    """Return the field `model` of a record: parameters, floats of state, and FLOPs per token.

    The FLOPs are those of the longest test.
    """
    test = cell.longest_test
    state = model.state_size(test.seq_len)
    return {
        "parameters": model.parameter_count(),
        "state": None if state is None else {**state._asdict(), "total": state.total},
        "flops_per_token": model.flops_per_token(test.seq_len, test.answers),
    }
