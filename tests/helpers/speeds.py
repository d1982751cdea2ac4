"""Stored speeds as they would be, for tests of several rooms."""

from typing import Any

from linbench.results.schema import Result
from linbench.results.speed_labels import AS_CALLED, OURS, REPLAYED


def a_speed(label: str = "deltanet", length: int = 256, seconds: float = 1.0, **more: Any) -> Result:
    """A stored result as one would be: a batch of 1,024 tokens, of decoding 4 sequences."""
    question, peer = more.pop("question", "train"), more.pop("peer", None)
    batch = more.pop("batch", 4 if question == "decode" else 1024 // length)
    settings = {"heads": 2, "head_dim": None, "expand_k": 1.0, **more.pop("settings", {})}
    timing = {"median": seconds, "low": 0.9 * seconds, "high": 1.1 * seconds, "calls": 9}
    sides: dict[str, Any] = {OURS: {AS_CALLED: timing}}
    if more.pop("gpu", False):
        sides[OURS][REPLAYED] = {name: value / 2 for name, value in timing.items()}
    if peer:
        sides[peer] = {AS_CALLED: {name: 2 * value for name, value in timing.items()}}
    bench = {
        "question": question,
        "layer": {
            "form": "native",
            "d_model": 64,
            "mixer": label.partition("[")[0],
            "version": 1,
            "settings": settings,
            "kernel": {},
            "source": None,
        },
        "shape": {"batch": batch, "length": length},
        "precision": "fp32",
        "backend": "auto",
        "peer": peer and {"name": peer, "version": "1"},
        "device": "cpu",
        **more.pop("bench", {}),
    }
    found = {
        "kind": "speed",
        "label": label,
        "bench": bench,
        "status": "ok",
        "reason": None,
        "sides": sides,
        "marks": [],
        "state": None,
        "cost": {"flops": 100.0, "bytes": 30.0},
        "ceilings": {"flops_per_second": 1000.0, "bytes_per_second": 100.0},
        "first_call": 3.0,
        "of_peer": None,
        "environment": {
            "device": {"name": "a CPU"},
            "threads": 2,
            "commit": "abcdef0123456789",
            "dirty": False,
            "packages": {},
        },
        **more,
    }
    return {**found, "id": str(sorted(found.items(), key=str))}


def layer_of(result: Result) -> dict[str, Any]:
    """Return a model's layer as a speed of it names it."""
    model = result["cell"]["model"]
    return {"form": model["form"], "d_model": model["backbone"]["settings"]["d_model"], **model["layers"][0]}
