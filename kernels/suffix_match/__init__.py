"""Copying from where the same symbols stood before: the longest suffix of the queries among earlier keys.

ROSA, Peng 2025, github.com/BlinkDL/RWKV-LM (RWKV-v8).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import call_folded, choose_backend, without_autocast
from linbench.kernels.suffix_match import pairwise, reference
from linbench.kernels.suffix_match.copying import Copy, Gradients, signs

__all__ = ["VERSION", "History", "signs", "suffix_match"]

VERSION = 1
"""Version, raised whenever a change here changes results.

It is part of the identity of every cell that uses this family.
"""

Find = Callable[..., tuple[Tensor, Tensor]]
_BACKENDS: dict[str, tuple[Find, Gradients]] = {
    "reference": (reference.find, reference.gradients),
    "pairwise": (pairwise.find, pairwise.gradients),
}


class History(NamedTuple):
    """The memory of earlier tokens, S places for each row.

    keys, values: signs of all tokens so far, those of this call included; unused places hold anything [B, S,
    C, b]. runs: how many symbols up to each key equal those up to the last query [B, S, C]. seen: number of
    tokens before this call [B].
    """

    keys: Tensor
    values: Tensor
    runs: Tensor
    seen: Tensor


def suffix_match(
    q: Tensor, k: Tensor, v: Tensor, *, history: History | None = None, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """Return the signs of v_{j+1}, where keys up to j < t end as the queries up to t do, for longest.

    Of several j that end alike for equally long the latest counts; where q_t equals no earlier key, o is
    zero. A symbol is made of b signs, and there are C streams of symbols. Signs have no gradient, so o has
    that of a relaxed match (`copying.Copy`), among the tokens of this call.

    Args:
        q, k, v: [B, T, C, b]; their signs count, and zero is negative.
        history: earlier tokens; None: there are none, and S is T.

    Returns: o [B, T, C, b] of -1, 0 and 1 in the dtype of v, and the runs after the last token [B, S, C] in
    at least float32.

    Raises ValueError: shapes that do not fit together, or a backend that is not there.
    """
    if not (q.dim() == 4 and q.shape == k.shape == v.shape and 0 not in q.shape[1:]):
        raise ValueError(
            "q, k and v [B, T, C, b] with at least one token, stream and sign, not"
            f" {[*map(tuple, (q.shape, k.shape, v.shape))]}"
        )
    took = choose_backend(backend, _BACKENDS, v, otherwise="pairwise", empty="pairwise")
    with without_autocast(v):
        o, runs = call_folded(partial(_match, took), q, k, v, *(history or (None,) * 4))
    return o.to(v.dtype), runs


def _match(
    backend: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor | None,
    values: Tensor | None,
    runs: Tensor | None,
    seen: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return what `suffix_match` does, of streams that are rows [B C, T or S, b]."""
    find, gradients = _BACKENDS[backend]
    streams = q.shape[2]
    dtype = at_least_float32(v.dtype)
    q, k, v = (_rows(x).to(dtype) for x in (q, k, v))
    keys = signs(k) if keys is None else _rows(keys)
    values = signs(v) if values is None else _rows(values).to(dtype)
    places, after = find(
        _symbols(q),
        _symbols(keys),
        None if runs is None else _rows(runs).int(),
        None if seen is None else seen.repeat_interleave(streams),
    )
    o: Tensor = Copy.apply(q, k, v, values, places, gradients)  # type: ignore[no-untyped-call]
    return _by_stream(o, streams), _by_stream(after.to(dtype), streams)


def _rows(x: Tensor) -> Tensor:
    """Return [B, T, C, ...] as [B C, T, ...]."""
    return x.transpose(1, 2).flatten(0, 1)


def _by_stream(x: Tensor, streams: int) -> Tensor:
    """Return rows [B C, T, ...] as [B, T, C, ...]."""
    return x.view(-1, streams, *x.shape[1:]).transpose(1, 2)


def _symbols(x: Tensor) -> Tensor:
    """Return a whole number for each symbol [..., b]: its positive signs as binary digits."""
    digits = 2 ** torch.arange(x.shape[-1], device=x.device)
    return ((x > 0) * digits).sum(dim=-1)
