"""The delta rule with momentum as a loop, to be read beside the paper (2605.05838).

Faster forms are tested against it. N is the paper's momentum with its sign turned.
"""

import torch
from torch import Tensor


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    log_momentum: Tensor,
    step: Tensor,
    share: Tensor,
    S: Tensor,
    N: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return o, S and N; arguments are those of the door, without a scale.

    They have one dtype, and gates are [B, T, H].
    """
    q, k = (x.repeat_interleave(v.shape[2] // k.shape[2], dim=2) for x in (q, k))
    a, m, e, b = (x[..., None] for x in (log_decay.exp(), log_momentum.exp(), step, share))
    outputs = []
    for t in range(q.shape[1]):
        S = a[:, t, ..., None] * S
        error = v[:, t] - _read(S, k[:, t])
        N = m[:, t, ..., None] * N + k[:, t, ..., None] * (e[:, t] * error)[..., None, :]
        S = S + b[:, t, ..., None] * N
        outputs.append(_read(S, q[:, t]))
    return torch.stack(outputs, dim=1), S, N


def _read(state: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("bhkv,bhk->bhv", state, key)
