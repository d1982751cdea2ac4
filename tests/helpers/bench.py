"""Layers that are quickly timed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from linbench.bench import run as measured
from linbench.bench.layer import LayerCase
from linbench.bench.presets import Preset, layer_cases
from linbench.results.store import Store

SMALL = Preset("for tests", d_model=16, heads=2, lengths=(4, 8), tokens=16, decode_batch=3)

PLAIN = """
import torch
from torch import nn

class Mine(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, x):
        if x.shape[1] == 13:
            raise ValueError("thirteen tokens")
        if x.shape[1] == 17:
            raise torch.OutOfMemoryError("out of memory")
        return self.linear(x).cumsum(dim=1)
"""


def a_case(model: str = "deltanet", **more: Any) -> LayerCase:
    """A step of training on two short sequences, or what else is asked."""
    (case,) = layer_cases([model], SMALL, device="cpu", repeats=1)
    return replace(case, **{"batch": 2, "length": 8, **more})


def run(cases: list[LayerCase], folder: Path, **more: Any) -> list[dict[str, Any]]:
    """Measured, or read from the folder where that has been done."""
    return measured.run(cases, Store(folder), tell=lambda line: None, **more)
