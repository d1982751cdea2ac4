"""The recurrence as a loop, to be read beside the papers. Everything faster is tested against it.

Linear attention 2006.16236, RetNet 2307.08621, Mamba-2 2405.21060, DeltaNet 2102.11174, Gated DeltaNet 2412.06464.
"""

import torch
from torch import Tensor

from linbench.kernels.matrix_state.update import Delta, Update


def reference(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, update: Update, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Token by token. q (already scaled), k [B, T, H, K]; v [B, T, H, V]; log_decay [B, T, H]; state [B, H, K, V]
    or None for zero."""
    outputs = []
    if state is None:
        state = v.new_zeros(v.shape[0], v.shape[2], q.shape[-1], v.shape[-1])
    for t in range(q.shape[1]):
        if log_decay is not None:
            state = log_decay[:, t, :, None, None].exp() * state
        write = v[:, t]
        if isinstance(update, Delta):
            recalled = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
            write = update.beta[:, t, :, None] * (write - recalled)
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], write)
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(outputs, dim=1), state
