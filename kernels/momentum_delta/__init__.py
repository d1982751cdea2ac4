"""The delta rule with momentum: a memory that follows a running sum of its corrections."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.momentum_delta.chunkwise import chunkwise
from linbench.kernels.momentum_delta.reference import reference
from linbench.kernels.operators import choose_backend, without_autocast
from linbench.kernels.shapes import expanded, require_shared_keys

__all__ = ["VERSION", "Memory", "flops_per_token", "momentum_delta"]

VERSION = 1
"""Version, raised whenever a change here changes results.

It is part of the identity of every cell that uses this family.
"""

_BACKENDS: dict[str, Callable[..., tuple[Tensor, Tensor, Tensor]]] = {
    "reference": reference,
    "chunkwise": chunkwise,
}


class Memory(NamedTuple):
    """State of the delta rule with momentum, in at least float32.

    S: what is read [B, H, K, V]. N: the momentum [B, H, K, V].
    """

    S: Tensor
    N: Tensor


def momentum_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor,
    log_momentum: Tensor,
    step: Tensor,
    share: Tensor,
    scale: float | None = None,
    state: tuple[Tensor, Tensor] | None = None,
    backend: Literal["auto", "reference", "chunkwise"] = "auto",
) -> tuple[Tensor, Memory]:
    """Return o_t = scale * S_t^T q_t, where S follows a running sum N of the corrections of a delta rule.

        N_t = m_t N_{t-1} + e_t k_t (v_t - a_t S_{t-1}^T k_t)^T
        S_t = a_t S_{t-1} + b_t N_t

    arXiv:2605.05838. Without momentum, m = 0, it is the gated delta rule of strength b e.

    Args:
        q, k: [B, T, Hk, K]; Hk divides H, key head h serves the value heads h*H/Hk ... (h+1)*H/Hk - 1.
        v: [B, T, H, V].
        log_decay, log_momentum: log a and log m, <= 0, -inf included, broadcastable to [B, T, H].
        step, share: e and b, >= 0, broadcastable to [B, T, H].
        scale: factor on the output; None is K ** -0.5.
        state: S and N [B, H, K, V] to start from; None is zero.
        backend: "auto" takes the fastest that runs on this device.

    Returns: o [B, T, H, V] in the dtype of v, and the final state.

    Raises ValueError: shapes that do not fit together, or a backend that is not there.
    """
    require_shared_keys(q, k, v)
    alone = q.shape[1] == 1 and not torch.is_grad_enabled()  # a token needs no triangular system
    took = choose_backend(backend, _BACKENDS, v, otherwise="reference" if alone else "chunkwise")
    wide, size = at_least_float32(v.dtype), (len(v), v.shape[2], k.shape[3], v.shape[3])
    S, N = (v.new_zeros(size, dtype=wide) for _ in "SN") if state is None else state
    if not S.shape == N.shape == size:
        raise ValueError(
            f"the state must be two of [B, H, K, V] = {size}, not {tuple(S.shape)} and {tuple(N.shape)}"
        )
    gates = {"log_decay": log_decay, "log_momentum": log_momentum, "step": step, "share": share}
    given = [q, k, v, *(expanded(name, gate, v.shape[:3]) for name, gate in gates.items()), S, N]
    with without_autocast(v):
        o, S, N = _BACKENDS[took](*(x.to(wide) for x in given))
        o = o * (q.shape[-1] ** -0.5 if scale is None else scale)
    return o.to(v.dtype), Memory(S, N)


def flops_per_token(*, heads: int, key_dim: int, value_dim: int) -> int:
    """Return the floating-point operations of the recurrence itself, forward, per token.

    Predicting, writing into N, adding N to S and reading cost 2KV each, two decays KV each.
    """
    return heads * key_dim * value_dim * 10
