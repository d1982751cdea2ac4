"""Softmax attention with forget gates or a window on a GPU.

It takes one launch forward (with gates two) and two backward, and lays no matrix of all queries and keys in
memory. A program has a block of queries and goes through the keys that they see, a block at a time, with the
largest score and the sum of weights so far (2205.14135, 2307.08691); backward a second kernel's program has a
block of keys. Gates come as sums c of their logarithms, best in float64: their differences count (FoX
2503.02130).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.decay import to_base_2
from linbench.kernels.matrix_state.triton.launch import TYPES, power_of_two
from linbench.kernels.matrix_state.triton.tiles import dot, load_rows, load_transposed, store_rows
from linbench.kernels.operators import fold_replicas, operator


@triton.jit
def place_of_block(T, H, C: tl.constexpr, LAST_FIRST: tl.constexpr):
    """Return the place of this program's block.

    Returns: where it begins in its sequence, where the sequence begins among all tokens [B T], the head, and
    its number among [B, H]. What takes longest begins first: the last queries (LAST_FIRST), which see most
    keys, or the first keys.
    """
    blocks = tl.cdiv(T, C)
    block, bh = place_in_grid(blocks)
    return (blocks - 1 - block if LAST_FIRST else block) * C, bh // H * T, bh % H, bh


@triton.jit
def _split(c, sums, T, by_sequence, by_token, by_head, H: tl.constexpr, C: tl.constexpr):
    """Store c [B, T, H] to base 2 as two float32 [B, H, 2, T], so that large differences are exact.

    Grid (T / C of every B H).
    """
    first, _, head, bh = place_of_block(T, H, C, False)
    t = first + tl.arange(0, C)
    exact = to_base_2(
        tl.load(c + bh // H * by_sequence + t * by_token + head * by_head, mask=t < T, other=0.0)
    )
    high = exact.to(tl.float32)
    tl.store(sums + bh * 2 * T + t, high, mask=t < T)
    tl.store(sums + (bh * 2 + 1) * T + t, (exact - high).to(tl.float32), mask=t < T)


@triton.jit
def _sums(sums, bh, n, T, i, GATED: tl.constexpr):
    """Load the two parts that `_split` stored for the block that begins at n."""
    high, low = tl.zeros_like(i).to(tl.float32), tl.zeros_like(i).to(tl.float32)
    if GATED:
        at = sums + bh * 2 * T + n + i
        high, low = tl.load(at, mask=i < T - n, other=0.0), tl.load(at + T, mask=i < T - n, other=0.0)
    return high, low


@triton.jit
def _scores(
    a, high_a, low_a, b, sums, bh, first, n, T, i, ks, scale, window,
    STRIDE: tl.constexpr, K: tl.constexpr, BY_KEYS: tl.constexpr, MASKED: tl.constexpr,
    GATED: tl.constexpr, WINDOW: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Return scores to base 2 of queries a, a block that begins at `first`, with keys b of the block at n.

    Rows of b lie STRIDE apart. BY_KEYS: a are keys and b queries. MASKED: keys that a query does not see get
    -inf.
    """
    high_b, low_b = _sums(sums, bh, n, T, i, GATED)
    left = (high_a[:, None] - high_b[None, :]) + (low_a[:, None] - low_b[None, :])
    s = dot(a, load_transposed(b, i, T - n, STRIDE, ks, K), DT) * to_base_2(scale) + (
        -left if BY_KEYS else left
    )
    if MASKED:
        distance = first - n + i[:, None] - i[None, :]
        distance = -distance if BY_KEYS else distance
        s = tl.where((distance >= 0) & (distance < window) if WINDOW else distance >= 0, s, float("-inf"))
    return s


@triton.jit
def _forward(
    q, k, v, sums, o, lse, T, scale, window,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SQ: tl.constexpr, SK: tl.constexpr, SV: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    GATED: tl.constexpr, WINDOW: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute o [B, T, H, V] and lse [B, H, T], the logarithm to base 2 of the sum of weights.

    Grid (T / C of every B H). q, k [B, T, H, K] and v [B, T, H, V] have tokens SQ, SK and SV apart; sums [B,
    H, 2, T].
    """
    first, sequence, head, bh = place_of_block(T, H, C, True)
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    here, end = sequence + first, T - first
    q_m = load_rows(q + here * SQ + head * K, i, end, SQ, ks, K)
    high_m, low_m = _sums(sums, bh, first, T, i, GATED)
    most = tl.full([C], float("-inf"), tl.float32)
    total, out = tl.zeros([C], tl.float32), tl.zeros([C, BV], tl.float32)
    earliest = tl.maximum(first - window + 1, 0) // C * C if WINDOW else 0
    # keys of blocks before, which without a window are all seen, and of the queries' own
    for OWN in tl.static_range(2):
        for n in range(first if OWN else earliest, first + C if OWN else first, C):
            k_n = k + (sequence + n) * SK + head * K
            s = _scores(
                q_m, high_m, low_m, k_n, sums, bh, first, n, T, i, ks, scale,
                window, SK, K, False, OWN or WINDOW, GATED, WINDOW, DT,
            )  # fmt: skip
            more = tl.maximum(most, tl.max(s, axis=1))
            above = tl.where(more == float("-inf"), 0.0, more)  # of a query that has seen no key yet
            p, kept = tl.exp2(s - above[:, None]), tl.exp2(most - above)
            total = total * kept + tl.sum(p, axis=1)
            out = dot(
                p.to(DT),
                load_rows(v + (sequence + n) * SV + head * V, i, T - n, SV, vs, V),
                DT,
                out * kept[:, None],
            )
            most = more
    store_rows(o + (here * H + head) * V, i, end, H * V, vs, V, out / total[:, None])
    tl.store(lse + bh * T + first + i, most + tl.log2(total), mask=i < end)


@triton.jit
def _query_gradients(
    q, k, v, sums, o, lse, do, dq, dc, delta, T, scale, window,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SQ: tl.constexpr, SK: tl.constexpr, SV: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    GATED: tl.constexpr, WINDOW: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute dq, delta [B, H, T] = o . do, by which every score's gradient is less, and the queries' dc.

    Their dc is zero but for delta's rounding, as c shifts all scores of a query alike; stored, the rounding
    is not left to the keys alone. Grid as `_forward`.
    """
    first, sequence, head, bh = place_of_block(T, H, C, True)
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    here, end, row = sequence + first, T - first, bh * T + first
    q_m = load_rows(q + here * SQ + head * K, i, end, SQ, ks, K)
    do_m = load_rows(do + (here * H + head) * V, i, end, H * V, vs, V)
    delta_m = tl.sum(
        load_rows(o + (here * H + head) * V, i, end, H * V, vs, V).to(tl.float32) * do_m.to(tl.float32),
        axis=1,
    )
    tl.store(delta + row + i, delta_m, mask=i < end)
    lse_m = tl.load(lse + row + i, mask=i < end, other=float("inf"))
    high_m, low_m = _sums(sums, bh, first, T, i, GATED)
    dq_m, dc_m = tl.zeros([C, BK], tl.float32), tl.zeros([C], tl.float32)
    earliest = tl.maximum(first - window + 1, 0) // C * C if WINDOW else 0
    for OWN in tl.static_range(2):  # as in `_forward`
        for n in range(first if OWN else earliest, first + C if OWN else first, C):
            k_n = k + (sequence + n) * SK + head * K
            s = _scores(
                q_m, high_m, low_m, k_n, sums, bh, first, n, T, i, ks, scale,
                window, SK, K, False, OWN or WINDOW, GATED, WINDOW, DT,
            )  # fmt: skip
            p = tl.exp2(s - lse_m[:, None])
            ds = p * (
                dot(do_m, load_transposed(v + (sequence + n) * SV + head * V, i, T - n, SV, vs, V), DT)
                - delta_m[:, None]
            )
            dq_m = dot(ds.to(DT), load_rows(k_n, i, T - n, SK, ks, K), DT, dq_m)
            dc_m += tl.sum(ds, axis=1)
    store_rows(dq + (here * H + head) * K, i, end, H * K, ks, K, dq_m * scale)
    if GATED:
        tl.store(dc + here * H + head + i * H, dc_m, mask=i < end)


@triton.jit
def _key_gradients(
    q, k, v, sums, lse, do, delta, dk, dv, dc, T, scale, window,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SQ: tl.constexpr, SK: tl.constexpr, SV: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    GATED: tl.constexpr, WINDOW: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute dk, dv, and dc [B, T, H], added to that of `_query_gradients`. Grid (T / C of every B H)."""
    first, sequence, head, bh = place_of_block(T, H, C, False)
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    here, end = sequence + first, T - first
    k_n = load_rows(k + here * SK + head * K, i, end, SK, ks, K)
    v_n = load_rows(v + here * SV + head * V, i, end, SV, vs, V)
    high_n, low_n = _sums(sums, bh, first, T, i, GATED)
    dk_n, dv_n, dc_n = tl.zeros([C, BK], tl.float32), tl.zeros([C, BV], tl.float32), tl.zeros([C], tl.float32)
    latest = tl.minimum(first + C + window - 1, T) if WINDOW else T
    for OWN in tl.static_range(2):  # queries of blocks after, and of the keys' own
        for m in range(first if OWN else first + C, first + C if OWN else latest, C):
            q_m, do_m, row = (
                q + (sequence + m) * SQ + head * K,
                do + ((sequence + m) * H + head) * V,
                bh * T + m,
            )
            lse_m = tl.load(lse + row + i, mask=i < T - m, other=float("inf"))
            delta_m = tl.load(delta + row + i, mask=i < T - m, other=0.0)
            s = _scores(
                k_n, high_n, low_n, q_m, sums, bh, first, m, T, i, ks,
                scale, window, SQ, K, True, OWN or WINDOW, GATED, WINDOW, DT,
            )  # fmt: skip
            p = tl.exp2(s - lse_m[None, :])
            dv_n = dot(p.to(DT), load_rows(do_m, i, T - m, H * V, vs, V), DT, dv_n)
            ds = p * (dot(v_n, load_transposed(do_m, i, T - m, H * V, vs, V), DT) - delta_m[None, :])
            dk_n = dot(ds.to(DT), load_rows(q_m, i, T - m, SQ, ks, K), DT, dk_n)
            dc_n -= tl.sum(ds, axis=1)
    store_rows(dk + (here * H + head) * K, i, end, H * K, ks, K, dk_n * scale)
    store_rows(dv + (here * H + head) * V, i, end, H * V, vs, V, dv_n)
    if GATED:
        at = dc + here * H + head + i * H
        tl.store(at, tl.load(at, mask=i < end, other=0.0) + dc_n, mask=i < end)


def _launch(
    q: Tensor, v: Tensor, window: int | None, *, gated: bool, back: bool = False
) -> tuple[tuple[int], dict[str, Any]]:
    """Return grid and parameters of a launch.

    Blocks have 64 queries and keys, fewer for a wide head or products of float32. With 16-bit heads of 128
    forward loads two blocks ahead, and backward, whose tiles fill the registers, none (measured on an H200).
    """
    batch, length, heads, key_dim = q.shape
    keys, values = power_of_two(key_dim), power_of_two(v.shape[3])
    wide, widest = q.dtype == torch.float32, max(keys, values)
    block = min(
        power_of_two(length),
        64 if widest <= 64 or (widest <= 128 and not wide) else 32 if widest <= 128 or not wide else 16,
    )
    stages = 2 if widest != 128 or wide else 1 if back else 3
    sizes = {"H": heads, "K": key_dim, "V": v.shape[3], "C": block, "BK": keys, "BV": values}
    switches = {"GATED": gated, "WINDOW": window is not None, "DT": TYPES[q.dtype]}
    return (-(-length // block) * batch * heads,), {
        **sizes,
        **switches,
        "num_warps": 2 if block == 16 else 4,
        "num_stages": stages,
    }


def rows_of(x: Tensor) -> tuple[Tensor, int]:
    """Return [B, T, H, D] with tokens equally far apart and the heads of each side by side, and how far.

    It is the tensor itself if it lies so, or a copy.
    """
    apart, width = x.stride(1), x.shape[2] * x.shape[3]
    # as a part of what one map gives for all three has them
    if x.stride() == (x.shape[1] * apart, apart, x.shape[3], 1):
        return x, apart
    return x.contiguous(), width


_LINE = 256
"""Tokens that a program of `_split` takes: chosen, not measured."""


def sums_of(q: Tensor, c: Tensor | None) -> Tensor:
    """Return what the kernels read of c; [B, 0] if there is none."""
    batch, length, heads, _ = q.shape
    if c is None:
        return q.new_empty((batch, 0))
    sums = q.new_empty((batch, heads, 2, length), dtype=torch.float32)
    _split[(-(-length // _LINE) * batch * heads,)](c, sums, length, *c.stride(), H=heads, C=_LINE)
    return sums


@operator("gated_attention")
def forward(
    q: Tensor, k: Tensor, v: Tensor, c: Tensor | None, window: int | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return o, and for `backward` the logarithms of the sums of weights [B, H, T] and the split c.

    Arguments are those of `triton_attention`.
    """
    (q, apart_q), (k, apart_k), (v, apart_v) = map(rows_of, (q, k, v))
    o, lse, sums = (
        v.new_empty(v.shape),
        v.new_empty((v.shape[0], v.shape[2], v.shape[1]), dtype=torch.float32),
        sums_of(q, c),
    )
    grid, shape = _launch(q, v, window, gated=c is not None)
    _forward[grid](
        q, k, v, sums, o, lse, q.shape[1], scale, window or 0, SQ=apart_q, SK=apart_k, SV=apart_v, **shape
    )
    return o, lse, sums


@operator("gated_attention_backward", differentiable=False)
def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sums: Tensor,
    o: Tensor,
    lse: Tensor,
    do: Tensor,
    window: int | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of q, k and v, and of c in float32; [B, 0] for a c that was not given."""
    (q, apart_q), (k, apart_k), (v, apart_v) = map(rows_of, (q, k, v))
    do, gated, length = do.contiguous(), sums.ndim == 4, q.shape[1]
    dq, dk, dv, delta = (
        q.new_empty(q.shape),
        k.new_empty(k.shape),
        v.new_empty(v.shape),
        torch.empty_like(lse),
    )
    dc = gradient_of_sums(q, sums)
    grid, shape = _launch(q, v, window, gated=gated, back=True)
    shape |= {"SQ": apart_q, "SK": apart_k, "SV": apart_v}
    _query_gradients[grid](q, k, v, sums, o, lse, do, dq, dc, delta, length, scale, window or 0, **shape)
    _key_gradients[grid](q, k, v, sums, lse, do, delta, dk, dv, dc, length, scale, window or 0, **shape)
    return dq, dk, dv, dc


def gradient_of_sums(q: Tensor, sums: Tensor) -> Tensor:
    """Allocate the gradient of c."""
    return q.new_empty(q.shape[:3] if sums.ndim == 4 else (len(q), 0), dtype=torch.float32)


@forward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, c: Tensor | None, window: int | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    batch, length, heads, _ = v.shape
    sums = (
        q.new_empty((batch, 0)) if c is None else q.new_empty((batch, heads, 2, length), dtype=torch.float32)
    )
    return v.new_empty(v.shape), v.new_empty((batch, heads, length), dtype=torch.float32), sums


@backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, sums: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), gradient_of_sums(q, sums)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, c, ctx.window, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.type = None if c is None else c.dtype
    ctx.mark_non_differentiable(*output[1:])


def _differentiate(ctx: Any, do: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    q, k, v, o, lse, sums = ctx.saved_tensors
    dq, dk, dv, dc = backward(q, k, v, sums, o, lse, do, ctx.window, ctx.scale)
    return dq, dk, dv, None if ctx.type is None else dc.to(ctx.type), None, None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def triton_attention(
    q: Tensor, k: Tensor, v: Tensor, c: Tensor | None, window: int | None, scale: float
) -> Tensor:
    """Return o_i = sum_j softmax_j(scale q_i . k_j + c_i - c_j) v_j over the keys j <= i.

    Args:
        q, k: [B, T, H, K].
        v: [B, T, H, V].
        c: [B, T, H], sums of logarithms of gates, or None.
        window: only keys with i - window < j count; None is all.

    Returns: [B, T, H, V] in the dtype of v.
    """
    if window is not None and window >= q.shape[1]:
        window = None  # who sees all is asked for no distance
    o: Tensor = forward(q.to(v.dtype), k.to(v.dtype), v, None if c is None else to_float32(c), window, scale)[
        0
    ]
    return o
