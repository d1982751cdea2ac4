"""PaTH attention: between a query and a key lies a product of Householder-like reflections, one per token.

The block algorithm of the paper, arXiv:2505.16381, over blocks as `reflected_blocks` makes them: a row of
queries starts from its block's start and goes left from block to block: q . k of the keys at the block's end,
then q <- q - q P.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.kernels.attention.calls import (
    heads_first,
    recomputed,
    require_fit,
    require_kept,
    scaled,
    split_scale,
    with_places,
)
from linbench.kernels.attention.eager import differences
from linbench.kernels.attention.reflected_blocks import blocked, local_blocks, require_reflections
from linbench.kernels.operators import call_folded, choose_backend, without_autocast

_WIDEST = {torch.float32: 64}
"""Largest dimension of a head that the Triton kernels take beside values of a type; 128 beside all others.

A block's transition of 128 channels in float32 fills an H100's registers.
"""


class Operands(NamedTuple):
    """Operands of a call with heads before tokens, in at least float32, as many heads of keys as of queries.

    q, w: [B, H, T, K], q scaled. beta: [B, H, T, 1]. k, v: [B, H, S, K or V], the last T of the queries' own
    tokens. there: [B, S], False for empty places. at_queries, at_keys: sums of log forget gates [B, T or S,
    H], or None.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    w: Tensor
    beta: Tensor
    there: Tensor
    at_queries: Tensor | None
    at_keys: Tensor | None


def path_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    beta: Tensor,
    *,
    key_positions: Tensor | None = None,
    kept: tuple[Tensor, Tensor] | None = None,
    scale: float | Tensor | None = None,
    empty_is_zero: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Return PaTH attention, arXiv:2505.16381.

    o_i = sum_{j <= i} softmax_j(scale q_i^T H_i H_{i-1} ... H_{j+1} k_j + c_i - c_j) v_j with H_t = I -
    beta_t w_t w_t^T.

    Args:
        q: [B, T, H, K].
        k, v: [B, S, Hk, K] and [B, S, Hk, V] with S >= T; Hk divides H. The last T are those of the queries'
            tokens. Those before come from a cache, with keys carried to its last token
            (`reflected_blocks.carried`).
        w: [B, T, Hk, K], of length one.
        beta: [B, T, Hk], in [0, 2].
        key_positions: [B, S] integers, `EMPTY` for places without a key; None if all have one.
        kept: c of queries [B, T, H] and of keys [B, S, H], as `attention` has them (PaTH-FoX). They are not
            scaled.
        scale: factor on the scores, a number or one per head [H]; None is K ** -0.5.
        empty_is_zero: whether places without a key hold zeros, so that they need not be masked.
        backend: "auto", "blocks" or "reference"; also "triton" on a GPU, for tokens without a cache, heads of
            at most 128, in float32 of 64, and gates that are the same for queries and keys. But for the
            reference none lays a matrix of all queries and keys in memory.

    Returns: [B, T, H, V] in the dtype of v.

    Raises ValueError: shapes do not fit together, or a backend is not there.
    """
    require_fit(q, k, v, as_many=False)
    require_reflections(w, beta, (q.shape[0], q.shape[1], *k.shape[2:]))
    if k.shape[1] < q.shape[1] or (key_positions is not None and key_positions.shape != k.shape[:2]):
        raise ValueError("k and v have a place for each query at least, and key_positions one for each place")
    require_kept(q, k, kept)
    has_kernel = _has_kernel(q, k, v, key_positions, kept)
    backends = (*_BACKENDS, "triton") if has_kernel else tuple(_BACKENDS)
    took = choose_backend(backend, backends, v, otherwise="blocks", empty="blocks")
    there, k, v = with_places(k, v, key_positions, empty_is_zero=empty_is_zero)
    groups, dtype = q.shape[2] // k.shape[2], v.dtype
    if took == "triton":
        return _triton(q, k, v, w, beta, None if kept is None else kept[0], scale)
    with without_autocast(q):
        k, v, w, beta = (heads_first(x, groups) for x in (k, v, w, beta[..., None]))
        at_queries, at_keys = kept or (None, None)
        operands = Operands(scaled(heads_first(q), scale), k, v, w, beta, there, at_queries, at_keys)
        return _BACKENDS[took](operands, dtype).transpose(1, 2).to(dtype)


def _has_kernel(
    q: Tensor, k: Tensor, v: Tensor, key_positions: Tensor | None, kept: tuple[Tensor, Tensor] | None
) -> bool:
    """Tell whether Triton has a kernel for a call."""
    alone = key_positions is None and k.shape[1] == q.shape[1]
    return (
        alone
        and max(k.shape[3], v.shape[3]) <= _WIDEST.get(v.dtype, 128)
        and (kept is None or kept[0] is kept[1])
    )


def _triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    beta: Tensor,
    c: Tensor | None,
    scale: float | Tensor | None,
) -> Tensor:
    """Call Triton's kernels, which are not installed everywhere, and slow to import."""
    from linbench.kernels.attention.triton.reflected import reflected_attention

    groups = q.shape[2] // k.shape[2]
    q, factor = split_scale(q, scale, exact=True)
    if groups > 1:
        k, v, w, beta = (x.repeat_interleave(groups, dim=2) for x in (k, v, w, beta))
    return reflected_attention(q, k, v, w, beta, c, factor)


def _blocks(operands: Operands, dtype: torch.dtype) -> Tensor:
    o: Tensor = call_folded(_by_blocks, *operands)
    return o


def _by_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    beta: Tensor,
    there: Tensor,
    at_queries: Tensor | None,
    at_keys: Tensor | None,
) -> Tensor:
    length = q.shape[2]
    before = k.shape[2] - length  # places of the cache
    local = local_blocks(blocked(q), blocked(k[:, :, before:]), blocked(w), blocked(beta))
    assert local.scores is not None
    assert local.queries is not None
    keys, transitions = local.keys.unbind(2), local.transition.unbind(2)
    chunk = local.keys.shape[3]
    rows = []
    for block in range(len(keys)):
        start, end = block * chunk, min((block + 1) * chunk, length)
        seen = before + end
        rows.append(
            recomputed(
                _row,
                local.queries[:, :, block, : end - start],
                local.scores[:, :, block, : end - start, : end - start],
                k[:, :, :before],
                v[:, :, :seen],
                there[:, :seen],
                None if at_queries is None else at_queries[:, start:end],
                None if at_keys is None else at_keys[:, :seen],
                *keys[:block],
                *transitions[:block],
            )
        )
    return torch.cat(rows, dim=2)


def _row(
    q: Tensor,
    own: Tensor,
    cached: Tensor,
    v: Tensor,
    there: Tensor,
    at_queries: Tensor | None,
    at_keys: Tensor | None,
    *blocks: Tensor,
) -> Tensor:
    """Return what a block of queries reads, going left through the blocks before it and then the cache.

    Args:
        q: [B, H, C, K], at the block's start.
        own: scores within the block.
        cached: keys of the cache.
        v, there: of all keys up to the block's end.
        at_queries, at_keys: their sums of log forget gates.
        blocks: keys at their ends and transitions of the blocks before this one.
    """
    keys, transitions = blocks[: len(blocks) // 2], blocks[len(blocks) // 2 :]
    parts = [own]
    for at_end, transition in zip(reversed(keys), reversed(transitions), strict=True):
        parts.append(q @ at_end.mT)
        q = q - q @ transition
    parts.append(q @ cached.mT)
    scores = torch.cat(parts[::-1], dim=-1)
    if at_queries is not None and at_keys is not None:
        scores = scores + differences(at_queries, at_keys, scores.dtype)
    late = torch.ones(own.shape[-2:], dtype=torch.bool, device=own.device).triu(1)
    unseen = F.pad(late, (scores.shape[-1] - late.shape[-1], 0)) | ~there[:, None, None]
    return scores.masked_fill(unseen, float("-inf")).softmax(-1) @ v


def reference(operands: Operands, dtype: torch.dtype) -> Tensor:
    """Carry each query back key by key, to be read beside the paper."""
    q, k, v, w, beta, there, at_queries, at_keys = operands
    before = k.shape[2] - q.shape[2]
    rows = []
    for b in range(len(q)):
        for t in range(q.shape[2]):
            carried_query, scores, seen = q[b, :, t], [], []
            for j in reversed(range(before + t + 1)):
                if there[b, j]:
                    scores.append((carried_query * k[b, :, j]).sum(dim=-1))
                    seen.append(j)
                if j >= before:  # a cache's keys are carried to its end
                    here = w[b, :, j - before]
                    along = beta[b, :, j - before] * (carried_query * here).sum(dim=-1, keepdim=True)
                    carried_query = carried_query - along * here
            logits = torch.stack(scores, dim=-1)
            if at_queries is not None and at_keys is not None:
                logits = logits + (at_queries[b, t] - at_keys[b, seen]).mT.to(logits.dtype)
            rows.append(torch.einsum("hs,hsv->hv", logits.softmax(dim=-1), v[b][:, seen]))
    return torch.stack(rows).reshape(len(q), q.shape[2], *v[0, :, 0].shape).transpose(1, 2)


_BACKENDS = {"blocks": _blocks, "reference": reference}
