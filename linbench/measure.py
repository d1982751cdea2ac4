"""One cell from beginning to end: train, judge, and say what it was measured with."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from linbench.cell import SCHEMA, Cell
from linbench.environment import environment
from linbench.evaluate import evaluate
from linbench.loading import theirs
from linbench.store import Result
from linbench.train import Diverged, Report, train

UNDERTRAINED_GAIN = 0.01
"""A run whose last fifth still gains more than this has not shown what it can do."""


def measure(cell: Cell, on_report: Callable[[Report], None]) -> Result:
    """Run a cell. Whatever goes wrong inside it becomes its status, so that other cells can go on.

    The result holds, beside the cell's identity: status (`ok`, `diverged`, `oom`, `failed`) with a reason; marks
    (`undertrained`); test metrics with sums and counts by slice; the curve over steps; parameters, state size and FLOPs per
    token; seconds; and the environment.
    """
    began = time.perf_counter()
    result: Result = {
        "schema": SCHEMA,
        "id": cell.id,
        "label": cell.model.label,
        "preset": cell.preset,
        "cell": cell.identity,
        "chance": cell.task.chance(),
        "status": "ok",
        "reason": None,
        "marks": [],
        "metrics": {},
        "slices": {},
        "curve": [],
        "model": {},
        "environment": environment(cell.device),
    }
    curve: list[dict[str, float]] = result["curve"]
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # TF32 off, whatever the process had chosen
    try:
        model = cell.model.build(cell.task, seed=cell.seed).to(cell.device)
        result["model"] = _size(cell, model)
        train(cell, model, curve, on_report)
        metrics, slices = evaluate(model, cell.task, seed=cell.seed, split="test", examples=cell.protocol.test_examples, device=cell.device)
        if not math.isfinite(metrics["nll"]):
            raise Diverged(f"the test loss was {metrics['nll']}")
        result |= {"metrics": metrics, "slices": slices, "marks": ["undertrained"] if undertrained(curve) else []}
    except Diverged as diverged:
        result |= {"status": "diverged", "reason": str(diverged)}
    except torch.OutOfMemoryError as error:
        result |= {"status": "oom", "reason": str(error).splitlines()[0]}
    except Exception as error:  # a mixer's own fault, ours or a user's: recorded with its place, and the run goes on
        result |= {"status": "failed", "reason": theirs(error)}
    finally:
        torch.set_float32_matmul_precision(precision)
    return result | {"seconds": time.perf_counter() - began}


def undertrained(curve: list[dict[str, float]]) -> bool:
    """Whether validation accuracy still rises by more than `UNDERTRAINED_GAIN` over the last fifth of the run."""
    return curve[-1]["accuracy"] - curve[len(curve) * 4 // 5 - 1]["accuracy"] > UNDERTRAINED_GAIN


def _size(cell: Cell, model: Any) -> dict[str, Any]:
    state = model.state_size(cell.task.seq_len)
    return {
        "parameters": model.parameter_count(),
        "state": None if state is None else {**state._asdict(), "total": state.total},
        "flops_per_token": model.flops_per_token(cell.task.seq_len, cell.task.answers),
    }
