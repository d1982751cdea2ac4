"""What the tasks of MAD (Poli et al. 2024, arXiv:2403.17844) were published with."""

from collections.abc import Sequence
from typing import Any

from linbench.tasks.base import Preset

MODEL = {"layers": 4, "d_model": 128}

PROTOCOL = {
    "batch_size": 128, "examples": 12_800, "epochs": 200, "shuffle": True, "lr": 5e-4, "schedule": "constant", "warmup": 0.0, "beta2": 0.999,
    "decay": "all", "clip": None, "stop_at": 0.999, "evaluations": 200, "validation_examples": 1280, "test_examples": 1280, "precision": "bf16",
}  # fmt: skip
"""As `--protocol mad` has it, with the middle one of its three learning rates and the larger of its two weight decays."""


def published(about: str, *, examples: int = 12_800, **task: Any) -> Preset:
    """One of the 66 settings, with its model and its training."""
    return Preset(f"published: {about}", task=task, model=MODEL, protocol=PROTOCOL | {"examples": examples})


def listed(items: Sequence[str], most: int = 8) -> str:
    """In words, only so many of them."""
    more = len(items) - most
    return "; ".join(items[:most]) + (f"; and so on, {more} more" if more > 0 else "")


def shortened(tokens: Sequence[int], most: int = 60) -> str:
    """A sequence, what lies in the middle of a long one left out."""
    if len(tokens) <= 2 * most:
        return " ".join(map(str, tokens))
    return f"{shortened(tokens[:most])} ... {shortened(tokens[-most:])}"
