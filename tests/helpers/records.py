"""Whole records of results, for tests that keep them in stores."""

from typing import Any

from linbench.common.hashing import digest
from linbench.experiments.cell import SCHEMA
from linbench.results.schema import Result
from linbench.results.schema.cells import CellResult


def a_point(accuracy: float = 0.5, step: int = 7) -> dict[str, float]:
    """Return a point of a curve."""
    return {"step": step, "tokens": 64 * step, "loss": 1.0, "accuracy": accuracy}


ENVIRONMENT: dict[str, Any] = {
    "commit": None,
    "dirty": None,
    "python": "3",
    "platform": "any",
    "packages": {"torch": "2"},
    "device": {"type": "cpu", "name": "a CPU", "cores": 2},
    "threads": 2,
    "deterministic": True,
}


def a_record(cell_id: str, **more: Any) -> Result:
    """Return the smallest whole result of a cell, with some fields changed."""
    layer = {"mixer": "deltanet", "version": 1, "settings": {"heads": 2}, "kernel": {}, "source": None}
    identity = {
        "schema": SCHEMA,
        "task": {"name": "mqar", "version": 1, "draws": 1, "settings": {"seq_len": 16}, "source": None},
        "model": {
            "form": "native",
            "backbone": {"version": 1, "settings": {"d_model": 16}, "kernel": {}},
            "layers": [layer],
        },
        "protocol": {
            "version": 1,
            "settings": {
                "lr": 0.01,
                "batch_size": 4,
                "tokens": 100,
                "precision": "fp32",
                "test_examples": 64,
            },
        },
        "seed": 0,
        "backend": "torch",
        "device": "cpu",
    }
    state = {"recurrent": 8, "cache": 0, "convolution": 0, "shift": 0, "total": 8}
    return {
        "schema": SCHEMA,
        "id": cell_id,
        "label": "deltanet",
        "preset": None,
        "purpose": "report",
        "search": None,
        "cell": identity,
        "chance": 0.25,
        "scoring": 1,
        "status": "ok",
        "reason": None,
        "marks": [],
        "metrics": {"accuracy": 0.5, "nll": 1.0},
        "slices": {},
        "curve": [a_point()],
        "model": {"parameters": 10, "state": state, "flops_per_token": 20.0},
        "seconds": 1.0,
        "stack": {"size": 1, "note": None},
        "environment": ENVIRONMENT,
    } | more


def a_probe(result_id: str, label: str = "some-model", accuracy: float = 0.5, **asked: Any) -> Any:
    """Return the whole result of a language model on mqar; `asked`: changed fields of its identity."""
    at = {"at": [1, 3], "accuracy": {"sum": [2 * accuracy, 2 * accuracy], "weight": [2, 2]}}
    identity = {
        "version": 1,
        "task": {"name": "mqar", "version": 1, "draws": 1, "settings": {"seq_len": 16}, "source": None},
        "model": {"digest": "d" * 64},
        "tokens": "t" * 64,
        "shots": 0,
        "answers": "hidden",
        "seed": 0,
        "examples": 4,
        "precision": "fp32",
        "device": "cpu",
    }
    return {
        "schema": SCHEMA,
        "kind": "probe",
        "id": result_id,
        "label": label,
        "preset": "quick",
        "probe": identity | asked,
        "chance": 0.2,
        "optimum": 1.0,
        "scoring": 1,
        "status": "ok",
        "reason": None,
        "marks": [],
        "metrics": {"accuracy": accuracy, "nll": 1.5, "stale": 0.25},
        "slices": {"distance": at},
        "choices": 256,
        "parameters": 1_000_000,
        "state": {"recurrent": 4096, "cache": 0, "tokens": 16},
        "seconds": 1.0,
        "environment": ENVIRONMENT,
    }


def as_if_on(kind: str, result: CellResult) -> CellResult:
    """Return a result as if the cell had run on another kind of device."""
    cell = {**result["cell"], "device": kind}
    return {**result, "cell": cell, "id": digest(cell)}
