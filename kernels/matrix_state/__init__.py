"""One door for every variant whose state is a matrix S [K, V] and whose update is linear in S."""

from typing import Literal

import torch
from torch import Tensor

from linbench.kernels.matrix_state.chunkwise import chunkwise
from linbench.kernels.matrix_state.reference import reference
from linbench.kernels.matrix_state.update import Add, Delta, Update

__all__ = ["VERSION", "Add", "Delta", "Update", "flops_per_token", "matrix_state"]

VERSION = 1
"""Raised whenever a change here changes results; part of the identity of every cell that uses this family."""

Backend = Literal["auto", "reference", "chunkwise"]
_BACKENDS = {"auto": chunkwise, "reference": reference, "chunkwise": chunkwise}


def matrix_state(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = None,
    update: Update = Add(),  # noqa: B008 - immutable
    scale: float | None = None,
    state: Tensor | None = None,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """S_t = exp(log_decay_t) S_{t-1} + (what `update` writes),  o_t = scale * S_t^T q_t.

    Args:
        q, k: [B, T, Hk, K]; Hk divides H, key head h serves the value heads h*H/Hk ... (h+1)*H/Hk - 1.
        v: [B, T, H, V].
        log_decay: natural logarithm of the decay, finite and <= 0, broadcastable to [B, T, H]; None is no decay.
        update: `Add()` writes k v^T; `Delta(beta)` writes beta k (v - S^T k)^T, reading the decayed state.
        scale: factor on the output; None is K ** -0.5.
        state: [B, H, K, V] to start from; None is zero.
        backend: "auto" takes the fastest that runs on this device.

    Returns:
        o [B, T, H, V] in the dtype of v, and the final state [B, H, K, V] in at least float32.

    Raises:
        ValueError: shapes that do not fit together, or a backend that is not there.
    """
    if backend not in _BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(_BACKENDS)}, not {backend!r}")
    _check(q, k, v, log_decay, update, state)
    batch, length, heads, _ = v.shape
    dtype = torch.promote_types(v.dtype, torch.float32)
    groups = heads // q.shape[2]
    q, k = (x.to(dtype).repeat_interleave(groups, dim=2) if groups > 1 else x.to(dtype) for x in (q, k))
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    if log_decay is not None:
        log_decay = log_decay.to(dtype).expand(batch, length, heads)
    if isinstance(update, Delta):
        update = Delta(update.beta.to(dtype).expand(batch, length, heads))
    o, state = _BACKENDS[backend](q, k, v.to(dtype), log_decay, update, None if state is None else state.to(dtype))
    return o.to(v.dtype), state


def flops_per_token(*, heads: int, key_dim: int, value_dim: int, decay: bool, delta: bool) -> int:
    """Floating-point operations of the recurrence itself, forward, per token (a multiply-add counts two).

    Write and read cost 2KV each, a decay KV, the prediction of the delta rule 2KV more.
    """
    return heads * key_dim * value_dim * (4 + decay + 2 * delta)


def _check(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None, update: Update, state: Tensor | None) -> None:
    batch, length, heads, value_dim = v.shape
    if q.shape != k.shape or q.shape[:2] != v.shape[:2] or heads % q.shape[2]:
        raise ValueError(f"q, k [B, T, Hk, K] and v [B, T, H, V] with Hk dividing H, not {[*map(tuple, (q.shape, k.shape, v.shape))]}")
    if length < 1:
        raise ValueError("matrix_state needs at least one token")
    gates = {"log_decay": log_decay, "beta": update.beta if isinstance(update, Delta) else None}
    for name, gate in gates.items():
        if gate is not None and not _broadcasts(gate.shape, (batch, length, heads)):
            raise ValueError(f"{name} must broadcast to [B, T, H] = {(batch, length, heads)}, not {tuple(gate.shape)}")
    if state is not None and state.shape != (batch, heads, q.shape[-1], value_dim):
        raise ValueError(f"state must be [B, H, K, V] = {(batch, heads, q.shape[-1], value_dim)}, not {tuple(state.shape)}")


def _broadcasts(shape: torch.Size, target: tuple[int, ...]) -> bool:
    sizes = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, wanted) for size, wanted in sizes)
