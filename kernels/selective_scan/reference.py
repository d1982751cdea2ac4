"""The selective scan as a loop. Faster forms are tested against it."""

import torch
from torch import Tensor


def reference(
    u: Tensor, step: Tensor, rate: Tensor, write: Tensor, read: Tensor, state: Tensor, signed: bool
) -> tuple[Tensor, Tensor]:
    """Return y [B, T, W] and the state; arguments are those of the door, with a state."""
    outputs = []
    for t in range(u.shape[1]):
        decay = (step[:, t, :, None] * rate).exp()
        decay = 2 * decay - 1 if signed else decay
        state = decay * state + (step[:, t] * u[:, t])[..., None] * write[:, t, None]
        outputs.append((state * read[:, t, None]).sum(dim=-1))
    return torch.stack(outputs, dim=1), state
