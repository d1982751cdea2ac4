"""Helpers of tests of variants: a mixer in float64 with the same weights every time."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from linbench.models.base import LayerInfo, Mixer

B, D, HEADS = 2, 16, 2
Error = Callable[[Tensor, Tensor], float]
Randomise = Callable[[Mixer], Mixer]


FIRST = LayerInfo(0, 1, D)


def build(cls: type[Mixer], layer: LayerInfo = FIRST, **settings: Any) -> Mixer:
    around = {"heads": HEADS} if "heads" in cls.Settings.model_fields else {}
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed walks the stack, for a CUDA that has not begun
        torch.default_generator.manual_seed(1)
        return cls(cls.Settings.parse({**around, **settings}, where="model"), layer).double()
