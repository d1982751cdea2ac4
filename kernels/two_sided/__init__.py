"""A matrix state that forgets along both of its sides: a decay for every row and one for every column."""

from collections.abc import Callable

from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import choose_backend, without_autocast
from linbench.kernels.shapes import expanded, require_shared_keys
from linbench.kernels.two_sided.chunkwise import chunkwise
from linbench.kernels.two_sided.reference import reference

__all__ = ["VERSION", "flops_per_token", "two_sided"]

VERSION = 1
"""Version, raised whenever a change here changes results.

It is part of the identity of every cell that uses this family.
"""

_BACKENDS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"reference": reference, "chunkwise": chunkwise}


def two_sided(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    key_log_decay: Tensor,
    value_log_decay: Tensor,
    scale: float | None = None,
    state: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Return o_t = scale * S_t^T q_t with S_t = (f_t g_t^T) * S_{t-1} + k_t v_t^T, arXiv:2210.04243.

    The product with f_t g_t^T is element by element.

    Args:
        q, k: [B, T, Hk, K]; Hk divides H, key head h serves the value heads h*H/Hk ... (h+1)*H/Hk - 1.
        v: [B, T, H, V].
        key_log_decay: log f <= 0, -inf included, broadcastable to [B, T, H, K].
        value_log_decay: log g, likewise to [B, T, H, V].
        scale: factor on the output; None is K ** -0.5.
        state: [B, H, K, V] to start from; None is zero.

    Returns: o [B, T, H, V] in the dtype of v, and the final state [B, H, K, V] in at least float32.

    Raises ValueError: shapes that do not fit together, or a backend that is not there.
    """
    require_shared_keys(q, k, v)
    took = choose_backend(backend, _BACKENDS, v, otherwise="chunkwise")
    if state is not None and state.shape != (expected := (len(v), v.shape[2], q.shape[3], v.shape[3])):
        raise ValueError(f"state must be [B, H, K, V] = {expected}, not {tuple(state.shape)}")
    key_log_decay = expanded("key_log_decay", key_log_decay, (*v.shape[:3], k.shape[3]))
    value_log_decay = expanded("value_log_decay", value_log_decay, v.shape)
    wide = at_least_float32(v.dtype)
    given = [x.to(wide) for x in (q, k, v, key_log_decay, value_log_decay)]
    with without_autocast(v):
        o, state = _BACKENDS[took](*given, state=None if state is None else state.to(wide))
        o = o * (q.shape[-1] ** -0.5 if scale is None else scale)
    return o.to(v.dtype), state


def flops_per_token(*, heads: int, key_dim: int, value_dim: int) -> int:
    """Return the floating-point operations of the recurrence itself, forward, per token.

    Write and read cost 2KV each, two decays KV each.
    """
    return heads * key_dim * value_dim * 6
