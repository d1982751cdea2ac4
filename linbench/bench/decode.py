"""`bench decode`: how long one more token takes after a context, for one sequence and for many at once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch

from linbench.bench.layer import LayerCase, layer_input
from linbench.bench.layer_side import Side
from linbench.bench.presets import Preset

REPEATS_FACTOR = 10
"""Calls behind a median, for each call that other questions take: one call is short."""


def cases(base: Sequence[LayerCase], preset: Preset) -> list[LayerCase]:
    """Return one sequence and many, of each layer after every context."""
    planned = []
    for case, length in product(base, preset.lengths):
        repeats = REPEATS_FACTOR * case.repeats
        for batch in sorted({1, preset.decode_batch}):
            planned.append(replace(case, question="decode", length=length, batch=batch, repeats=repeats))
    return planned


def decode_call(case: LayerCase, side: Side) -> Callable[[], Any]:
    """Return a call that takes one token for every sequence, each time from the same state of the context.

    Raises UndeclaredError: the layer has no state.
    """
    x, call = layer_input(case), side.after(case.batch, case.length)
    return torch.no_grad()(lambda: call(x))
