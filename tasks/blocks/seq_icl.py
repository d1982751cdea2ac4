"""Settings that the code of Akyürek et al. 2024 (arXiv:2401.12973), seq_icl, trains with."""

from collections.abc import Mapping
from typing import Any

from linbench.tasks.base import Preset

MODEL = {"layers": 2, "d_model": 32, "heads": 1, "norm": "layer", "embedding_dropout": 0.1}

LATER = {**MODEL, "layers": 4, "d_model": 128, "heads": 2}
"""The models of its later state; its Transformer has 8 layers."""

PROTOCOL = {
    "batch_size": 32,
    "examples": 5000,
    "epochs": 400,
    "shuffle": True,
    "lr": 5e-4,
    "beta2": 0.999,
    "clip": None,
    "validation_examples": 500,
    "test_examples": 500,
}


def seq_icl_preset(
    about: str, *, task: Mapping[str, Any], protocol: Mapping[str, Any], model: Mapping[str, Any] = MODEL
) -> Preset:
    """Return a published setting with its model and training, which labels all tokens."""
    return Preset(
        f"published: {about}", task={**task, "labels": "all"}, model=model, protocol={**PROTOCOL, **protocol}
    )
