"""`bench prefill`: how long a prompt takes, alone and among many."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from linbench.bench.layer import Case, inputs
from linbench.bench.layer_side import Side
from linbench.bench.presets import Preset


def cases(base: Sequence[Case], preset: Preset) -> list[Case]:
    """Of each at every length: a prompt alone, and a batch."""
    return [
        replace(case, question="prefill", length=length, batch=batch)
        for case in base
        for length in preset.lengths
        for batch in sorted({1, preset.batch(length)})
    ]


def prompt(case: Case, side: Side) -> Callable[[], Any]:
    """A call from an empty state to outputs and a state that can be carried on."""
    x = inputs(case)
    return torch.no_grad()(lambda: side.prefill(x))
