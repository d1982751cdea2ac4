"""The recurrence of variants whose state is a matrix S [K, V] and whose update is linear in S."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from linbench.kernels.matrix_state.chunkwise import chunkwise
from linbench.kernels.matrix_state.recurrence import Read, Recurrence, check, part_sequences
from linbench.kernels.matrix_state.reference import reference
from linbench.kernels.matrix_state.scan import scan
from linbench.kernels.matrix_state.update import Add, Delta, LowRank, Update
from linbench.kernels.operators import choose_backend, require_heads, runs_triton, without_autocast

__all__ = ["VERSION", "Add", "Delta", "LowRank", "Update", "flops_per_token", "matrix_state", "widens"]

VERSION = 4
"""Version, raised whenever a change here changes results by more than rounding.

It is part of the identity of every cell that uses this family.
"""

Backend = Literal["auto", "reference", "scan", "chunkwise", "triton"]


def _triton(recurrence: Recurrence) -> tuple[Tensor, Tensor | None]:
    from linbench.kernels.matrix_state.triton import triton  # not everywhere to be had, and slow to import

    if not torch.compiler.is_compiling():  # it would compile anew what it sees changed
        _BACKENDS["triton"] = triton  # to import what is there takes long enough
    return triton(recurrence)


_BACKENDS: dict[str, Callable[[Recurrence], tuple[Tensor, Any]]] = {
    "reference": reference,
    "scan": scan,
    "chunkwise": chunkwise,
    "triton": _triton,
}


def matrix_state(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Tensor | None = None,
    update: Update = Add(),  # noqa: B008 - immutable
    read: Read = "after",
    bonus: Tensor | None = None,
    steps: int = 1,
    scale: float | None = None,
    state: Tensor | None = None,
    final: bool = True,
    cu_seqlens: Tensor | None = None,
    backend: Backend = "auto",
) -> tuple[Tensor, Any]:
    """Return o_t = scale * S_t^T q_t, with S_t = exp(log_decay_t) S_{t-1} + (the write of `update`).

    Args:
        q: [B, T, Hk, K]; Hk divides H, key head h serves the value heads h*H/Hk ... (h+1)*H/Hk - 1.
        k: [B, steps T, Hk, K].
        v: [B, steps T, H, V].
        log_decay: natural logarithm of the decay, <= 0, broadcastable to [B, T, H], or with a decay for every
            row of the state to [B, T, H, K]; None is no decay. From about -104 on, -inf included, nothing is
            left of what came before: a token with such a decay resets the state, and its gradient there is
            zero. NaN is not refused, and makes NaN.
        update: `Add()` writes k v^T; `Delta(beta)` writes beta k (v - S^T k)^T; `LowRank(a, b)` writes b (S^T
            a)^T + k v^T.
        read: "after" the update of the token, or "before" it and its decay (RWKV-5/6 2404.05892).
        bonus: u, broadcastable to [H, K], with read "before": the weight of the token's own write, o_t +
            scale * (q_t . (u k_t)) v_t.
        steps: updates per token (DeltaProduct 2502.10297), the decay before the first.
        scale: factor on the output; None is K ** -0.5.
        state: [B, H, K, V] to start from; None is zero.
        final: whether the final state is wanted; a GPU does not store it otherwise.
        cu_seqlens: [N + 1], where each of N sequences begins that lie one after another in a batch of one,
            and their end: 0, ..., T. Each starts from zero, and the final state is that of the last. They
            cost what one sequence of T tokens with a decay costs. Without `state`, and with read "after".
        backend: "auto" takes the fastest that runs on this device; "scan" is there for comparisons.

    Returns: o [B, T, H, V] in the dtype of v, and the final state [B, H, K, V] in at least float32, or None
    if it is not wanted.

    Raises ValueError: shapes that do not fit together, or a name that is not there.
    """
    require_heads(q=q, k=k, v=v)
    alone = q.shape[1] == 1 and not torch.is_grad_enabled()  # a token needs no triangular system
    took = choose_backend(backend, _BACKENDS, v, otherwise="reference" if alone else "chunkwise")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if cu_seqlens is not None:
        if state is not None or read != "after":
            raise ValueError("cu_seqlens go without an initial state, and with read='after'")
        log_decay, update = part_sequences(cu_seqlens, q, k, v, log_decay, update, steps)
    recurrence = Recurrence(q, k, v, log_decay, update, read, steps, scale, state, final, bonus)
    apart = bonus is not None and not (
        took == "triton" and steps == 1 and recurrence.vector_decay and isinstance(update, Add)
    )
    if apart or took != "triton":  # which looks at what it has not seen yet
        recurrence = check(recurrence)
    with without_autocast(v):
        o, last = _BACKENDS[took](recurrence._replace(bonus=None) if apart else recurrence)
        if apart:
            o = _with_own_write(o, recurrence)
    if o.dtype != v.dtype:
        o = o.to(v.dtype)
    return o, last if final else None


def _with_own_write(o: Tensor, recurrence: Recurrence) -> Tensor:
    """Return o_t + scale * (q_t . (u k_t)) v_t, summed over a token's steps: [B, T, H, V]."""
    recurrence, bonus = recurrence.promoted(), recurrence.bonus
    assert bonus is not None
    k, v = (
        x.reshape(*recurrence.q.shape[:2], recurrence.steps, *x.shape[2:])
        for x in (recurrence.k, recurrence.v)
    )
    strength = ((recurrence.q * bonus.to(recurrence.q.dtype))[:, :, None] * k).sum(dim=-1, keepdim=True)
    return o + recurrence.scale * torch.sum(strength * v, dim=2)


def doubles_value_tile(v: Tensor) -> bool:
    """Tell whether one more column of values [B, T, H, V] doubles large tiles of Triton's kernels.

    Then it costs less in a call of its own, but for a token alone.
    """
    values = v.shape[-1]
    return runs_triton(v) and v.shape[1] > 1 and values >= 64 and values.bit_count() == 1


def flops_per_token(
    *, heads: int, key_dim: int, value_dim: int, decay: bool, delta: bool, steps: int = 1
) -> int:
    """Return the floating-point operations of the recurrence itself, forward, per token.

    A multiply-add counts as two. Write and read cost 2KV each, a decay KV, the prediction of the delta rule
    2KV more. Of `steps` per token each writes and predicts.
    """
    return heads * key_dim * value_dim * (2 + decay + steps * (2 + 2 * delta))
