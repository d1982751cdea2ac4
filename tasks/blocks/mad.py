"""Settings that the tasks of MAD (Poli et al. 2024, arXiv:2403.17844) were published with."""

from typing import Any

from linbench.tasks.base import Preset

MODEL = {"layers": 2, "d_model": 128}

PROTOCOL = {
    "batch_size": 128,
    "examples": 12_800,
    "epochs": 200,
    "shuffle": True,
    "lr": 5e-4,
    "schedule": "constant",
    "warmup": 0.0,
    "beta2": 0.999,
    "decay": "all",
    "clip": None,
    "stop_at": 0.999,
    "evaluations": 200,
    "validation_examples": 1280,
    "test_examples": 1280,
    "precision": "bf16",
}
"""The protocol `mad`, with the middle of its three learning rates and the larger of its two weight decays."""


def mad_preset(about: str, *, examples: int = 12_800, **task: Any) -> Preset:
    """Return one of the 66 published settings, with its model and its training."""
    return Preset(f"published: {about}", task=task, model=MODEL, protocol=PROTOCOL | {"examples": examples})
