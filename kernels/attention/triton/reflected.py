"""PaTH attention between blocks on a GPU: one launch forward; backward some for each group of key blocks.

Every block is worked out by itself already (`reflected_blocks`). A program has a block of queries and goes
left, a block of keys at a time: q . k, with the largest score and the sum of weights so far, then q <- q - q
P. Products q P cannot be undone, so backward needs a query at every block it came by. These are as many
numbers as scores, so they are made again for a group of key blocks at a time, from queries stored at the
borders of groups: memory grows as T^1.5, and no matrix of all queries and keys is laid in memory. For each
group, from left to right,

    1. queries of all blocks to its right go through it (`_walk`),
    2. their gradients G go back through it: G <- ds k + G - G P^T (`_return`),
    3. each block of it sums over the queries: ds^T q, p^T do and -q^T G (`_collect`).

Queries and their gradients are carried in float32; beside 16-bit values, products read them and transitions
in 16 bits. Nothing is added by several programs at once, so results are the same every time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.decay import to_base_2
from linbench.kernels.matrix_state.triton.launch import TYPES, power_of_two
from linbench.kernels.matrix_state.triton.tiles import (
    dot,
    load_rows,
    load_square,
    load_transposed,
    store_rows,
)
from linbench.kernels.operators import fold_replicas, operator

LOG2_E = 1.4426950408889634


@triton.jit
def _sums(sums, bh, n, T, i, GATED: tl.constexpr):
    """Load the two parts of sums [B H, 2, T] for the block that begins at n."""
    high, low = tl.zeros_like(i).to(tl.float32), tl.zeros_like(i).to(tl.float32)
    if GATED:
        at = sums + bh * 2 * T + n + i
        high, low = tl.load(at), tl.load(at + T)
    return high, low


@triton.jit
def _past(q, P, ks, K: tl.constexpr, DT: tl.constexpr):
    """Return queries after they went through a block, q - q P."""
    return q - dot(q, load_rows(P, ks, K, K, ks, K), DT)


@triton.jit
def _forward(
    q, own, keys, P, v, sums, o, lse, N,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    GATED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute o [B H, T, V] and lse [B H, T], the logarithm to base 2 of the sum of weights.

    Grid (N of every B H). q, keys [B H, T, K]; own [B H, N, C, C]; P [B H, N, K, K]; v [B H, T, V]; sums [B
    H, 2, T]. The last blocks, which see most keys, begin first.
    """
    number, bh = place_in_grid(N)
    block = N - 1 - number
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    first = bh * N  # number of the sequence's first block among all
    high, low = _sums(sums, bh, block * C, N * C, i, GATED)
    q_m = load_rows(q + (first + block) * C * K, i, C, K, ks, K).to(tl.float32)
    left = (high[:, None] - high[None, :]) + (low[:, None] - low[None, :])
    s = to_base_2(load_square(own + (first + block) * C * C, C)) + left
    s = tl.where(i[:, None] >= i[None, :], s, float("-inf"))
    most = tl.max(s, axis=1)
    p = tl.exp2(s - most[:, None])
    total = tl.sum(p, axis=1)
    out = dot(p.to(DT), load_rows(v + (first + block) * C * V, i, C, V, vs, V), DT)
    for back in range(block):
        n = block - 1 - back
        high_n, low_n = _sums(sums, bh, n * C, N * C, i, GATED)
        left = (high[:, None] - high_n[None, :]) + (low[:, None] - low_n[None, :])
        s = to_base_2(dot(q_m, load_transposed(keys + (first + n) * C * K, i, C, K, ks, K), DT)) + left
        more = tl.maximum(most, tl.max(s, axis=1))
        p, kept = tl.exp2(s - more[:, None]), tl.exp2(most - more)
        total = total * kept + tl.sum(p, axis=1)
        v_n = load_rows(v + (first + n) * C * V, i, C, V, vs, V)
        out = dot(p.to(DT), v_n, DT, out * kept[:, None])
        most = more
        q_m = _past(q_m, P + (first + n) * K * K, ks, K, DT)
    store_rows(o + (first + block) * C * V, i, C, V, vs, V, out / total[:, None])
    tl.store(lse + (first + block) * C + i, most + tl.log2(total))


@triton.jit
def _borders(
    q, P, borders, N, J, S,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Store queries as they enter each group of S key blocks from the right: borders [B H, J, T, K].

    Grid (N of every B H).
    """
    number, bh = place_in_grid(N)
    block = N - 1 - number
    i, ks = tl.arange(0, C), tl.arange(0, BK)
    q_m = load_rows(q + (bh * N + block) * C * K, i, C, K, ks, K).to(tl.float32)
    for back in range(block):
        n = block - 1 - back
        if (back == 0) | ((n + 1) % S == 0):
            store_rows(borders + ((bh * J + n // S) * N + block) * C * K, i, C, K, ks, K, q_m)
        q_m = _past(q_m, P + (bh * N + n) * K * K, ks, K, DT)


@triton.jit
def _walk(
    borders, P, walked, N, J, S, group,
    K: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Store queries before each block n of a group: walked [B H, S, T, K] at n - group S.

    Grid (blocks after the group's first of every B H).
    """
    start = group * S
    number, bh = place_in_grid(N - 1 - start)
    block = start + 1 + number
    i, ks = tl.arange(0, C), tl.arange(0, BK)
    q_m = load_rows(borders + ((bh * J + group) * N + block) * C * K, i, C, K, ks, K)
    end = tl.minimum(block, start + S)
    for back in range(end - start):
        n = end - 1 - back
        store_rows(walked + ((bh * S + n - start) * N + block) * C * K, i, C, K, ks, K, q_m)
        q_m = _past(q_m, P + (bh * N + n) * K * K, ks, K, DT)


@triton.jit
def _return(
    walked, returned, keys, P, v, sums, lse, delta, do, dq, dc, N, S, group,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    GATED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Carry gradients dq [B H, T, K] of queries that left a group on the left back to where they entered it.

    Those past each block n of it are stored: returned [B H, S, T, K] at n - group S. The queries' dc [B H, T]
    is zero but for the rounding of delta, by which every score's gradient is less; it is added all the same,
    so that the rounding is not left to the keys alone. Grid as `_walk`.
    """
    start = group * S
    number, bh = place_in_grid(N - 1 - start)
    block = start + 1 + number
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    first, here = bh * N, (bh * N + block) * C
    high, low = _sums(sums, bh, block * C, N * C, i, GATED)
    lse_m, delta_m = tl.load(lse + here + i), tl.load(delta + here + i)
    do_m = load_rows(do + here * V, i, C, V, vs, V)
    dq_m, dc_m = load_rows(dq + here * K, i, C, K, ks, K), tl.zeros([C], tl.float32)
    for n in range(start, tl.minimum(block, start + S)):
        at = ((bh * S + n - start) * N + block) * C * K
        store_rows(returned + at, i, C, K, ks, K, dq_m)
        k_n = keys + (first + n) * C * K
        high_n, low_n = _sums(sums, bh, n * C, N * C, i, GATED)
        left = (high[:, None] - high_n[None, :]) + (low[:, None] - low_n[None, :])
        q_m = load_rows(walked + at, i, C, K, ks, K)
        s = to_base_2(dot(q_m, load_transposed(k_n, i, C, K, ks, K), DT)) + left
        dp = dot(do_m, load_transposed(v + (first + n) * C * V, i, C, V, vs, V), DT)
        ds = tl.exp2(s - lse_m[:, None]) * (dp - delta_m[:, None])
        dc_m += tl.sum(ds, axis=1)
        dq_m = dq_m - dot(dq_m, load_transposed(P + (first + n) * K * K, ks, K, K, ks, K), DT)
        dq_m = dot(ds.to(DT), load_rows(k_n, i, C, K, ks, K), DT, dq_m)
    store_rows(dq + here * K, i, C, K, ks, K, dq_m)
    if GATED:
        tl.store(dc + here + i, tl.load(dc + here + i) + dc_m)


@triton.jit
def _collect(
    walked, returned, keys, v, sums, lse, delta, do, dkeys, dP, dv, dc, N, S, group,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    GATED: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Sum over the queries right of each block of a group: dkeys, dP, dv, and dc [B H, T].

    Grid (the group's blocks of every B H).
    """
    start = group * S
    number, bh = place_in_grid(tl.minimum(S, N - start))
    n = start + number
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    here = (bh * N + n) * C
    k_n, v_n = load_rows(keys + here * K, i, C, K, ks, K), load_rows(v + here * V, i, C, V, vs, V)
    high, low = _sums(sums, bh, n * C, N * C, i, GATED)
    dk_n, dv_n = tl.zeros([C, BK], tl.float32), tl.zeros([C, BV], tl.float32)
    dP_n, dc_n = tl.zeros([BK, BK], tl.float32), tl.zeros([C], tl.float32)
    for block in range(n + 1, N):
        at, row = ((bh * S + number) * N + block) * C * K, (bh * N + block) * C
        high_m, low_m = _sums(sums, bh, block * C, N * C, i, GATED)
        left = (high_m[None, :] - high[:, None]) + (low_m[None, :] - low[:, None])
        across = load_transposed(walked + at, i, C, K, ks, K)
        s = to_base_2(dot(k_n, across, DT)) + left
        p = tl.exp2(s - tl.load(lse + row + i)[None, :])
        dv_n = dot(p.to(DT), load_rows(do + row * V, i, C, V, vs, V), DT, dv_n)
        dp = dot(v_n, load_transposed(do + row * V, i, C, V, vs, V), DT)
        ds = p * (dp - tl.load(delta + row + i)[None, :])
        dk_n = dot(ds.to(DT), load_rows(walked + at, i, C, K, ks, K), DT, dk_n)
        dP_n -= dot(across, load_rows(returned + at, i, C, K, ks, K), DT)
        dc_n -= tl.sum(ds, axis=1)
    store_rows(dkeys + here * K, i, C, K, ks, K, dk_n)
    store_rows(dv + here * V, i, C, V, vs, V, dv_n)
    store_rows(dP + (bh * N + n) * K * K, ks, K, K, ks, K, dP_n)
    if GATED:
        tl.store(dc + here + i, dc_n)


def _shape(v: Tensor, own: Tensor, keys: Tensor, *, gated: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return parameters of a launch: those of all kernels, and those of kernels that read values."""
    key_dim, value_dim = keys.shape[2], v.shape[2]
    block = {"K": key_dim, "C": own.shape[2], "BK": power_of_two(key_dim), "DT": TYPES[v.dtype]}
    # chosen, not measured: what a program sums is as large as a block's transition, and in 16 bits what is
    # loaded ahead fits beside it
    block |= {"num_warps": 8 if key_dim > 64 else 4, "num_stages": 1 if v.dtype == torch.float32 else 2}
    return block, {**block, "V": value_dim, "BV": power_of_two(value_dim), "GATED": gated}


def _split(c: Tensor | None, q: Tensor) -> Tensor:
    """Return c [B H, T] to base 2 as two float32 [B H, 2, T], so that large differences are exact."""
    if c is None:
        return q.new_empty(len(q), 0)
    exact = c.double() * LOG2_E
    high = exact.float()
    return torch.stack([high, (exact - high.double()).float()], dim=1)


@operator("reflected_attention")
def forward(
    q: Tensor, own: Tensor, keys: Tensor, P: Tensor, v: Tensor, c: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return o [B H, T, V] in the dtype of v, and the logarithms to base 2 of the sums of weights [B H, T].

    Arguments are those of `reflected_attention`.
    """
    q, own, keys, P, v = (x.contiguous() for x in (q, own, keys, P, v))
    o, lse = torch.empty_like(v), v.new_empty(v.shape[:2], dtype=torch.float32)
    _, shape = _shape(v, own, keys, gated=c is not None)
    blocks = own.shape[1]
    _forward[(blocks * len(q),)](q, own, keys, P, v, _split(c, q), o, lse, blocks, **shape)
    return o, lse


@operator("reflected_attention_backward", differentiable=False)
def backward(
    q: Tensor,
    own: Tensor,
    keys: Tensor,
    P: Tensor,
    v: Tensor,
    c: Tensor | None,
    o: Tensor,
    lse: Tensor,
    do: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of q, own, keys, P, v and c in float32; [B H, 0] for a c that was not given."""
    rows, blocks = own.shape[:2]
    q, own, keys, P, v, o, do = (x.contiguous() for x in (q, own, keys, P, v, o, do))
    sums = _split(c, q)
    delta = (o.float() * do.float()).sum(-1)
    group = max(1, round(blocks**0.5))
    groups = -(-blocks // group)
    few, shape = _shape(v, own, keys, gated=c is not None)
    # of wide heads it has too many tiles to load any of them ahead
    returning = {**shape, "num_stages": 1} if shape["num_warps"] == 8 else shape
    dq, dkeys, dP, dv = (torch.zeros_like(x, dtype=torch.float32) for x in (q, keys, P, v))
    of_queries, of_keys = torch.zeros_like(lse), torch.zeros_like(lse)  # of c
    borders = q.new_empty(rows, groups, *q.shape[1:])
    # products read nothing else of them
    walked, returned = (v.new_empty(rows, group, *q.shape[1:]) for _ in range(2))
    _borders[(blocks * rows,)](q, P, borders, blocks, groups, group, **few)
    for j in range(groups):
        later = blocks - 1 - j * group
        if later:
            _walk[(later * rows,)](borders, P, walked, blocks, groups, group, j, **few)
            _return[(later * rows,)](
                walked,
                returned,
                keys,
                P,
                v,
                sums,
                lse,
                delta,
                do,
                dq,
                of_queries,
                blocks,
                group,
                j,
                **returning,
            )
            _collect[(min(group, blocks - j * group) * rows,)](
                walked,
                returned,
                keys,
                v,
                sums,
                lse,
                delta,
                do,
                dkeys,
                dP,
                dv,
                of_keys,
                blocks,
                group,
                j,
                **shape,
            )
    own_dv, down, own_dc = _within(own, v, sums, lse, delta, do)
    dc = of_queries + of_keys + own_dc
    return dq, down, dkeys, dP, dv + own_dv, dc if c is not None else dc[:, :0].clone()


def _within(
    own: Tensor, v: Tensor, sums: Tensor, lse: Tensor, delta: Tensor, do: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of v, scores and c from what blocks read of themselves, all blocks at once."""
    rows, blocks, chunk, _ = own.shape
    s = LOG2_E * own
    if sums.ndim == 3:
        high, low = sums.view(rows, 2, blocks, chunk).unbind(1)
        s = s + ((high[..., None] - high[..., None, :]) + (low[..., None] - low[..., None, :]))
    lse, delta = (x.view(rows, blocks, chunk, 1) for x in (lse, delta))
    p = (s - lse).exp2().tril()
    v, do = (x.view(rows, blocks, chunk, -1) for x in (v, do))
    ds = p * ((do @ v.mT).float() - delta)
    return (p.to(do.dtype).mT @ do).float().flatten(1, 2), ds, (ds.sum(-1) - ds.sum(-2)).flatten(1)


@forward.register_fake
def _(q: Tensor, own: Tensor, keys: Tensor, P: Tensor, v: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor]:
    return torch.empty_like(v), v.new_empty(v.shape[:2], dtype=torch.float32)


@backward.register_fake
def _(q: Tensor, own: Tensor, keys: Tensor, P: Tensor, v: Tensor, c: Tensor | None, *_: Any) -> Any:
    dc = q.new_empty(q.shape[:2] if c is not None else (len(q), 0), dtype=torch.float32)
    return *(torch.empty_like(x, dtype=torch.float32) for x in (q, own, keys, P, v)), dc


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx: Any, do: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    *inputs, o, lse = ctx.saved_tensors
    gradients = backward(*inputs, o, lse, do)
    return tuple(None if x is None else dx.to(x.dtype) for x, dx in zip(inputs, gradients, strict=True))


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def reflected_attention(
    q: Tensor, own: Tensor, keys: Tensor, P: Tensor, v: Tensor, c: Tensor | None
) -> Tensor:
    """Return what queries read of their own block and of those before it, in N blocks of C tokens.

    Args:
        q: [R, N C, K], at the start of their blocks, in float32.
        own: scores within each block [R, N, C, C], in float32.
        keys: [R, N C, K], at the end of their blocks, in the dtype of v.
        P: the blocks' transitions [R, N, K, K], in the dtype of v.
        v: [R, N C, V].
        c: [R, N C], sums of logarithms of gates, or None.

    Returns: [R, N C, V] in the dtype of v.
    """
    o: Tensor = forward(q, own, keys, P, v, c)[0]
    return o
