"""`bench decode`: how long one more token takes, after a context, alone and for many sequences at once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from linbench.bench.layer import Case, inputs
from linbench.bench.layer_side import Side
from linbench.bench.presets import Preset

CALLS = 10
"""For each that other questions have: one is short."""


def cases(base: Sequence[Case], preset: Preset) -> list[Case]:
    """Of each after every context: one sequence, and many."""
    return [
        replace(case, question="decode", length=length, batch=batch, repeats=CALLS * case.repeats)
        for case in base
        for length in preset.lengths
        for batch in sorted({1, preset.decoded})
    ]


def token(case: Case, side: Side) -> Callable[[], Any]:
    """A call that takes one token for every sequence: `Mixer.decode` with T = 1 and the state of the context,
    again and again from the same state.

    Raises UndeclaredError: the layer has no state.
    """
    x, after = inputs(case), side.after(case.batch, case.length)
    return torch.no_grad()(lambda: after(x))
