"""`bench prefill`: how long a prompt takes, alone and in a batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch

from linbench.bench.layer import LayerCase, layer_input
from linbench.bench.layer_side import Side
from linbench.bench.presets import Preset


def cases(base: Sequence[LayerCase], preset: Preset) -> list[LayerCase]:
    """Return a prompt alone and a batch of prompts, of each layer at every length."""
    planned = []
    for case, length in product(base, preset.lengths):
        for batch in sorted({1, preset.batch(length)}):
            planned.append(replace(case, question="prefill", length=length, batch=batch))
    return planned


def prefill_call(case: LayerCase, side: Side) -> Callable[[], Any]:
    """Return a call from an empty state to outputs and a state that decoding can go on from."""
    x = layer_input(case)
    return torch.no_grad()(lambda: side.prefill(x))
