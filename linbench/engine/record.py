"""The record of a cell: what a result holds before and after its measurement."""

import math
from typing import Any

from linbench.engine.evaluate import Judgement
from linbench.engine.step import Run
from linbench.experiments.cell import SCHEMA, Cell
from linbench.results.environment import environment
from linbench.results.record import UNDERTRAINED, Result

UNDERTRAINED_GAIN = 0.01
"""A run whose last fifth still gains more than this has not shown what it can do."""


def blank(cell: Cell, stacked: int, note: str | None) -> Result:
    """A result that says nothing yet."""
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
        **({"tests": _tests(cell)} if len(cell.tests) > 1 else {}),
        "curve": [],
        "model": {},
        "seconds": 0.0,
        "stack": {"size": stacked, "note": note},
        "environment": environment(cell.device),
    }


def _tests(cell: Cell) -> list[dict[str, Any]]:
    """Before they are taken."""
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


def _verdict(run: Run, judgement: Judgement | None) -> dict[str, Any]:
    if judgement is None:
        return {"status": "diverged", "reason": run.diverged}
    metrics, tests = judgement.metrics, judgement.tests
    loss = metrics[run.cell.task.loss]
    if not math.isfinite(loss):
        return {"status": "diverged", "reason": f"the test loss was {loss}"}
    marks = [UNDERTRAINED] if not run.stopped and undertrained(run.curve) else []
    if len(tests) == 1:
        return {"metrics": metrics, "slices": tests[0].slices, "marks": marks}
    found = [told | one._asdict() for told, one in zip(_tests(run.cell), tests, strict=True)]
    return {"metrics": metrics, "tests": found, "marks": marks}


def undertrained(curve: list[dict[str, float]]) -> bool:
    """Whether validation accuracy still rises by more than `UNDERTRAINED_GAIN` over the last fifth of the
    run."""
    return curve[-1]["accuracy"] - curve[len(curve) * 4 // 5 - 1]["accuracy"] > UNDERTRAINED_GAIN


def _size(cell: Cell, model: Any) -> dict[str, Any]:
    test = cell.longest_test
    state = model.state_size(test.seq_len)
    return {
        "parameters": model.parameter_count(),
        "state": None if state is None else {**state._asdict(), "total": state.total},
        "flops_per_token": model.flops_per_token(test.seq_len, test.answers),
    }
