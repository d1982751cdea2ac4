"""The recurrence as a loop, to be read beside the papers. Faster forms are tested against it.

Linear attention 2006.16236, RetNet 2307.08621, Mamba-2 2405.21060, GLA 2312.06635, RWKV-5/6 2404.05892,
DeltaNet 2102.11174, Gated DeltaNet 2412.06464, KDA 2510.26692, Comba 2506.02475, RWKV-7 2503.14456,
DeltaProduct 2502.10297.
"""

import torch
from torch import Tensor

from linbench.kernels.matrix_state.recurrence import Recurrence
from linbench.kernels.matrix_state.update import Delta, LowRank


def reference(recurrence: Recurrence) -> tuple[Tensor, Tensor]:
    """Return o [B, T, H, V] and the final state [B, H, K, V], token by token and step by step."""
    q, k, v, log_decay, update, read, steps, scale, state, _, _ = recurrence.promoted()
    outputs = []
    if state is None:
        state = v.new_zeros(v.shape[0], v.shape[2], k.shape[-1], v.shape[-1])
    for t in range(q.shape[1]):
        before = state
        if log_decay is not None:
            state = _decay(log_decay[:, t], state)
        for s in range(t * steps, (t + 1) * steps):
            if isinstance(update, Delta):
                erase = k if update.erase_key is None else update.erase_key
                recalled = _read(
                    before if update.reads == "undecayed" and s == t * steps else state, erase[:, s]
                )
                state = state + _outer(k[:, s], update.beta[:, s, :, None] * (v[:, s] - recalled))
            elif isinstance(update, LowRank):
                recalled = _read(before if s == t * steps else state, update.a[:, s])
                state = state + _outer(update.b[:, s], recalled) + _outer(k[:, s], v[:, s])
            else:
                state = state + _outer(k[:, s], v[:, s])
        outputs.append(scale * _read(before if read == "before" else state, q[:, t]))
    return torch.stack(outputs, dim=1), state


def _decay(log_decay: Tensor, state: Tensor) -> Tensor:
    """Return the decay of a log_decay [B, H], one number per head, or [B, H, K]."""
    rows = log_decay[..., None] if log_decay.dim() == 2 else log_decay
    return rows.exp()[..., None] * state


def _read(state: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("bhkv,bhk->bhv", state, key)


def _outer(key: Tensor, value: Tensor) -> Tensor:
    return torch.einsum("bhk,bhv->bhkv", key, value)
