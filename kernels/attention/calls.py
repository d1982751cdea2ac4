"""Checks, layout and rows of queries, for doors of attention whose scores are more than products."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from linbench.kernels.attention.positions import EMPTY, positions_from_zero
from linbench.kernels.dtypes import to_float32
from linbench.kernels.operators import require_heads

ROWS = 128
"""Queries that meet all their keys at a time, so that no matrix of all queries and keys is laid in memory.

Chosen, not measured.
"""


class Heads(NamedTuple):
    """Operands with heads before tokens, in at least float32, as many heads of keys as of queries.

    q: [B, H, T, K], scaled. k, v: [B, H, S, K or V], zero in empty places. query_positions, key_positions:
    [B, 1, T or S]. in_order: whether query t stands where key t does, for all of them.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    query_positions: Tensor
    key_positions: Tensor
    in_order: bool


def require_fit(q: Tensor, k: Tensor, v: Tensor, *, as_many: bool) -> None:
    """Require that shapes of queries, keys and values fit together.

    Args:
        q, k, v: [B, T, H, K], [B, S, Hk, K] and [B, S, Hk, V].
        as_many: whether there must be as many queries as keys.

    Raises ValueError: they do not.
    """
    require_heads(q=q, k=k, v=v)
    fit = (
        q.shape[0] == k.shape[0]
        and q.shape[3] == k.shape[3]
        and k.shape[:3] == v.shape[:3]
        and q.shape[2] % k.shape[2] == 0
    )
    if not fit or (as_many and q.shape[1] != k.shape[1]):
        raise ValueError(
            "q [B, T, H, K], k [B, S, Hk, K], v [B, S, Hk, V] with Hk dividing H, not"
            f" {[*map(tuple, (q.shape, k.shape, v.shape))]}"
        )


def require_both(query_positions: Tensor | None, key_positions: Tensor | None) -> None:
    """Require positions of both queries and keys, or of neither.

    Raises ValueError: only one kind is given.
    """
    if (query_positions is None) != (key_positions is None):
        raise ValueError("give query_positions and key_positions, or neither")


def require_kept(q: Tensor, k: Tensor, kept: tuple[Tensor, Tensor] | None) -> None:
    """Require sums of forget gates of all heads of queries, at queries and at keys, or none.

    Args:
        q, k: [B, T, H, K] and [B, S, Hk, K].
        kept: [B, T, H] and [B, S, H].

    Raises ValueError: shapes do not fit together.
    """
    if kept is not None and (kept[0].shape != q.shape[:3] or kept[1].shape != (*k.shape[:2], q.shape[2])):
        raise ValueError(
            f"kept is [B, T, H] of queries and [B, S, H] of keys, not {[tuple(x.shape) for x in kept]}"
        )


def with_places(
    k: Tensor, v: Tensor, key_positions: Tensor | None, *, empty_is_zero: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return which places hold a key [B, S], and keys and values that are zero in all others.

    A weight of zero does not silence a NaN, so what an empty place holds must go.
    """
    if key_positions is None:
        return torch.ones(k.shape[:2], dtype=torch.bool, device=k.device), k, v
    there = key_positions != EMPTY
    if not empty_is_zero:
        k, v = (x.masked_fill(~there[:, :, None, None], 0.0) for x in (k, v))
    return there, k, v


def to_heads(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    scale: float | Tensor | None,
    *,
    empty_is_zero: bool,
) -> Heads:
    """Return the operands of a call as `Heads`.

    Raises ValueError: they do not fit together.
    """
    require_both(query_positions, key_positions)
    require_fit(q, k, v, as_many=key_positions is None)
    if key_positions is not None:
        _, k, v = with_places(k, v, key_positions, empty_is_zero=empty_is_zero)
    groups = q.shape[2] // k.shape[2]
    at_queries, at_keys = (
        (positions_from_zero(x) if given is None else given)[:, None].expand(len(x), -1, -1)
        for x, given in ((q, query_positions), (k, key_positions))
    )
    return Heads(
        scaled(heads_first(q), scale),
        heads_first(k, groups),
        heads_first(v, groups),
        at_queries,
        at_keys,
        key_positions is None,
    )


def heads_first(x: Tensor, groups: int = 1) -> Tensor:
    """Return x [B, T, Hk, ...] as [B, groups Hk, T, ...], each head repeated, in at least float32."""
    x = to_float32(x).transpose(1, 2)
    return x if groups == 1 else x.repeat_interleave(groups, dim=1)


def scaled(q: Tensor, scale: float | Tensor | None) -> Tensor:
    """Return q [B, H, T, K] times `scale`, a number, one per head [H], or None for K ** -0.5."""
    if isinstance(scale, Tensor):
        return q * scale[:, None, None].to(q.dtype)
    return q * (q.shape[-1] ** -0.5 if scale is None else scale)


def split_scale(q: Tensor, scale: float | Tensor | None, *, exact: bool) -> tuple[Tensor, float]:
    """Return q [B, T, H, K] and the number that its scores are multiplied by: factors of heads go into q.

    Args:
        scale: a number, one per head [H], or None for K ** -0.5.
        exact: whether factors of heads are multiplied in at least float32.
    """
    if not isinstance(scale, Tensor):
        return q, q.shape[-1] ** -0.5 if scale is None else float(scale)
    q = to_float32(q) if exact else q
    return q * scale[:, None].to(q.dtype), 1.0


def by_rows(
    function: Callable[..., Tensor], queries: Sequence[Tensor], keys: Sequence[Tensor], *, in_order: bool
) -> Tensor:
    """Return function(*queries, *keys), some rows of queries at a time.

    With gradients what it makes of each row is computed once more on the way back, and not kept.

    Args:
        queries: [., ., T, ...] each.
        keys: [., ., S, ...] each.
        in_order: whether row t sees at most the first t + 1 keys.
    """
    length = queries[0].shape[2]
    if length <= ROWS:
        return function(*queries, *keys)
    parts = []
    for start in range(0, length, ROWS):
        end = start + ROWS
        seen = [x[:, :, :end] for x in keys] if in_order else keys
        parts.append(recomputed(function, *(x[:, :, start:end] for x in queries), *seen))
    return torch.cat(parts, dim=2)


def recomputed(function: Callable[..., Tensor], *args: object) -> Tensor:
    """Return function(*args), which is computed once more for its gradient."""
    if not torch.is_grad_enabled():
        return function(*args)
    result: Tensor = checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
    return result
