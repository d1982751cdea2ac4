"""Floors of log decays.

Below them nothing is left, and sums over tokens keep the digits of the small decays around. Packed sequences
are kept apart by a token whose log decay is hugely negative, or -inf. A sum that holds such a number has lost
all others, and the difference of two such sums is not what decayed between them.
"""

import torch
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32

FLOORS = {torch.float32: -128.0, torch.float64: -768.0}
"""Log decays whose exponential is exactly zero: the smallest positive numbers are e^-103.3 and e^-744.4."""

SCORE_FLOOR = -1e4
"""Floor of log gates that are added to scores or compared with other logarithms.

It lies far below any gate that a layer makes.
"""

LARGEST_LOG = 88.0
"""Largest logarithm whose exponential float32 holds.

A decay made of more would be exp(-inf), and its gradient 0 times infinity.
"""


def bounded(log_decay: Tensor) -> Tensor:
    """Return log decays in at least float32, each at least the floor of its type.

    NaN stays NaN; the gradient below the floor is zero.
    """
    wide = log_decay.to(at_least_float32(log_decay.dtype))
    return wide.clamp(min=FLOORS[wide.dtype])


def bounded_for_scores(log_gate: Tensor) -> Tensor:
    """Return log gates in float64, each at least `SCORE_FLOOR`.

    Sums over a million tokens still differ to 1e-6. The gradient below the floor is zero.
    """
    return log_gate.double().clamp(min=SCORE_FLOOR)
