"""Caches of attention: keys and values of the tokens so far, and how tokens are appended."""

from typing import Any, NamedTuple

from torch import Tensor

from linbench.kernels.attention.caches import append_one, appends_at_once
from linbench.models.blocks.linear import SharedInput
from linbench.models.blocks.positions import require_all_fit, require_places


class Cache(NamedTuple):
    """Keys and values of the tokens so far; unused places hold zeros and the position `EMPTY`.

    keys: [B, Hk, S, K]. values: [B, Hk, S, V], contiguous for each head. positions: [B, S]. seen: number of
    tokens so far [B]. conv: state of the convolution. log_left: with forget gates, the logarithm of what is
    left of each key [B, S, H], in at least float32. directions, memory: what variants keep beside it, batch
    first.
    """

    keys: Tensor
    values: Tensor
    positions: Tensor
    seen: Tensor
    conv: Tensor | None
    log_left: Tensor | None = None
    directions: Tensor | None = None
    memory: Any = None


class Tokens(NamedTuple):
    """Projections of some tokens.

    shared: input of the linear maps. q, k, v: by head. positions: [B, T]. conv: state of the convolution.
    log_forget_sum: running sum of log forget gates [B, T, H] in float64, None without gates. more: what a
    variant adds.
    """

    shared: SharedInput
    q: Tensor
    k: Tensor
    v: Tensor
    positions: Tensor
    conv: Tensor | None
    log_forget_sum: Tensor | None
    more: Any = None


def append(
    state: Cache, new: Tokens, *, window: int | None, in_place: bool = False, first: bool = False
) -> Cache:
    """Append tokens to a cache; with a window the oldest give way.

    Args:
        window: how many keys a query sees; None is all.
        in_place: write into the tensors of `state`.
        first: as `in_place`, and the cache is still empty.

    Raises:
        RuntimeError: it is full. A GPU is not waited for.
    """
    places = state.keys.shape[2]
    if in_place and appends_at_once(state.keys, state.values, new.k, new.v):
        log_left = _kept_log_left(state, new)
        cache = state.keys, state.values, state.positions
        seen, fits = append_one(*cache, new.k, new.v, new.positions)
        require_room(state, fits, window)
        return state._replace(seen=seen, conv=new.conv, log_left=log_left)
    if _keeps_all(state, window):
        require_places(new.positions, places)
    k = new.k.to(state.keys.dtype)[:, -places:].transpose(1, 2)
    v = new.v.to(state.values.dtype)[:, -places:].transpose(1, 2)
    positions = new.positions[:, -places:]
    place = positions % places  # with a window the oldest token is overwritten
    scatter = Tensor.scatter_ if in_place or first else Tensor.scatter
    # the first tokens lie in order, and a plain copy takes a GPU much less time than a scatter
    copy = first and new.positions.shape[1] <= places

    def write(cache: Tensor, x: Tensor) -> Tensor:
        if copy:
            cache[:, :, : x.shape[2]] = x
            return cache
        return scatter(cache, 2, place[:, None, :, None].expand_as(x), x)

    return state._replace(
        keys=write(state.keys, k),
        values=write(state.values, v),
        positions=scatter(state.positions, 1, place, positions),
        seen=new.positions[:, -1] + 1,
        conv=new.conv,
        log_left=_kept_log_left(state, new),
    )


def require_room(state: Cache, fits: Tensor, window: int | None) -> None:
    """Require that all tokens fit into a cache from which none gives way: `fits` is one truth value.

    Raises RuntimeError: it is full. A GPU is not waited for.
    """
    if _keeps_all(state, window):
        require_all_fit(fits, state.keys.shape[2])


def _keeps_all(state: Cache, window: int | None) -> bool:
    return window is None or state.keys.shape[2] < window


def _kept_log_left(state: Cache, new: Tokens) -> Tensor | None:
    """Return `Cache.log_left` after these tokens."""
    return None if state.log_left is None else log_left_after(state, new).to(state.log_left.dtype)


def log_left_after(state: Cache, new: Tokens) -> Tensor:
    """Return the logarithm of what is left of each key in the cache after these tokens [B, S, H], in float64.

    The cache includes the tokens themselves.
    """
    assert state.log_left is not None
    assert new.log_forget_sum is not None
    places = state.log_left.shape[1]
    place = (new.positions[:, -places:] % places)[:, :, None]
    total = new.log_forget_sum[:, -1:]
    of_new = (total - new.log_forget_sum)[:, -places:]
    return (state.log_left + total).scatter(1, place.expand_as(of_new), of_new)
