"""The recurrence as a loop. Everything faster is tested against it."""

import torch
from torch import Tensor


def reference(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    """a, b [B, T, C], state [B, C] -> h [B, T, C]."""
    steps = []
    for t in range(b.shape[1]):
        state = a[:, t] * state + b[:, t]
        steps.append(state)
    return torch.stack(steps, dim=1)
