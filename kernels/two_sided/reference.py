"""Two-sided decays as a loop, to be read beside the paper (2210.04243).

Faster forms are tested against it.
"""

import torch
from torch import Tensor


def reference(
    q: Tensor, k: Tensor, v: Tensor, key_log_decay: Tensor, value_log_decay: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return o and the state; arguments are those of the door, without a scale.

    They have one dtype, and decays have full shape.
    """
    f, g = key_log_decay.exp(), value_log_decay.exp()
    q, k = (x.repeat_interleave(v.shape[2] // k.shape[2], dim=2) for x in (q, k))
    outputs = []
    if state is None:
        state = v.new_zeros(v.shape[0], v.shape[2], k.shape[3], v.shape[3])
    for t in range(q.shape[1]):
        state = _outer(f[:, t], g[:, t]) * state + _outer(k[:, t], v[:, t])
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(outputs, dim=1), state


def _outer(rows: Tensor, columns: Tensor) -> Tensor:
    return rows[..., :, None] * columns[..., None, :]
