"""The scan as a loop. Faster forms are tested against it."""

import torch
from torch import Tensor


def reference(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    """Return h [B, T, C] of a, b [B, T, C] and state [B, C]."""
    steps = []
    for t in range(b.shape[1]):
        state = a[:, t] * state + b[:, t]
        steps.append(state)
    return torch.stack(steps, dim=1)
