"""PaTH attention on a GPU, forward and backward, arXiv:2505.16381; no matrix of all queries and keys is laid.

Two sizes share the sequence: blocks of C tokens, and spans of S blocks.

    1. Each block is worked out by itself (`local`): its own scores, queries at its start, keys at its end.
    2. Keys are carried to the end of their span (`carried`).
    3. Queries go left through their own span, a block at a time (`near`).
    4. Then they go left span by span, and meet all keys of a span as softmax attention does (`far`).

So most pairs of a query and a key cost what they do in softmax. Backward makes 1 and 2 again, walks queries
as in 3 and 4, and stores them as they meet each block of their span, and each span: with S near the root of
the number of blocks memory grows as T^1.5. Queries and their gradients are carried in float32; beside 16-bit
values, products read them in 16 bits. Nothing is added by several programs at once, so results are the same
every time.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from linbench.kernels.attention.triton.gated import gradient_of_sums, rows_of, sums_of
from linbench.kernels.attention.triton.reflected import carried, far, local, near
from linbench.kernels.dtypes import to_float32
from linbench.kernels.matrix_state.triton.launch import TYPES, power_of_two
from linbench.kernels.operators import fold_replicas, operator

BLOCK = 64
"""Most tokens of a block."""

SPAN = 4
"""Fewest blocks of a span: chosen, not measured. Shorter sequences have no spans but one."""


class Layout(NamedTuple):
    """Sizes of a call, and parameters of its launches.

    rows: B H. blocks: N. span: S. spans: G, all but the last, whose keys no later span reads. tile: M.
    """

    rows: int
    length: int
    blocks: int
    span: int
    spans: int
    tile: int
    block: dict[str, Any]
    values: dict[str, Any]

    @property
    def places(self) -> int:
        """The number of tokens with those that fill the last block, N C."""
        return int(self.blocks * self.block["C"])

    @property
    def numbers(self) -> tuple[int, int, int]:
        """N, S and G."""
        return self.blocks, self.span, self.spans

    @property
    def tiles(self) -> int:
        """The number of tiles of queries."""
        return -(-self.places // self.tile)


def layout(q: Tensor, v: Tensor) -> Layout:
    """Return the layout of a call with q [B, T, H, K] and v [B, T, H, V]."""
    batch, length, heads, key_dim = q.shape
    # products of float32 take twice the registers
    most = BLOCK // 2 if v.dtype == torch.float32 else BLOCK
    chunk = max(16, min(most, power_of_two(length)))  # as tiles of products have
    blocks = -(-length // chunk)
    span = max(SPAN, 1 << round((blocks.bit_length() - 1) / 2))
    # of narrower tiles in 16 bits Triton 3.6 makes wrong values and gradients on Hopper, or reads beside them
    least = 16 if v.dtype == torch.float32 else 64
    keys, values_dim = (max(least, power_of_two(dim)) for dim in (key_dim, v.shape[3]))
    block = {"K": key_dim, "C": chunk, "BK": keys, "DT": TYPES[v.dtype]}
    values = {**block, "H": heads, "V": v.shape[3], "BV": values_dim}
    tile = chunk if v.dtype == torch.float32 else 2 * chunk
    return Layout(batch * heads, length, blocks, span, (blocks - 1) // span, tile, block, values)


def _launch(sizes: Layout, kernel: str) -> dict[str, int]:
    """Return warps and stages of a launch, of a kernel named by its file and itself."""
    tile = sizes.tile if kernel in {"far.read", "far.back", "far.collect"} else 0
    wide = max(sizes.block["BK"], sizes.values["BV"]) > 64 or tile > BLOCK
    exact = sizes.values["DT"] == TYPES[torch.float32]
    if kernel in {"local.prepare", "local.prepare_backward"} and not exact:
        wide = False  # a fifth to two fifths faster for heads of 128 than with eight warps, on an H200
    return {"num_warps": 8 if wide else 4, "num_stages": 1 if exact or kernel in _ONE_STAGE else 2}


_ONE_STAGE = {
    "local.prepare",
    "local.prepare_backward",
    "carried.carry",
    "carried.carry_backward",
    "near.back",
}
"""Kernels whose tiles leave no room for the next step of a loop, in 16 bits."""


class Blocks(NamedTuple):
    """Results of `local.prepare` and `carried.carry`: blocks and spans before queries read them.

    ends, after and P_span are empty without a second span.
    """

    own: Tensor
    queries: Tensor
    keys: Tensor
    P: Tensor
    M: Tensor
    Y: Tensor
    U: Tensor
    ends: Tensor
    after: Tensor
    P_span: Tensor


def _prepare(q: Tensor, k: Tensor, w: Tensor, beta: Tensor, v: Tensor, scale: float, sizes: Layout) -> Blocks:
    """Work out blocks by themselves, and carry keys to the end of their span."""
    (q, apart_q), (k, apart_k), (w, apart_w) = map(rows_of, (q, k, w))
    rows, blocks, spans = sizes.rows, sizes.blocks, sizes.spans
    chunk, key_dim = sizes.block["C"], sizes.block["K"]

    def make(*shape: int, dtype: torch.dtype = v.dtype) -> Tensor:
        return v.new_empty((rows, *shape), dtype=dtype)

    made = Blocks(
        make(blocks, chunk, chunk, dtype=torch.float32),
        make(sizes.places, key_dim, dtype=torch.float32),
        make(sizes.places, key_dim),
        make(blocks, key_dim, key_dim),
        make(blocks, chunk, chunk, dtype=torch.float32),
        make(blocks, chunk, chunk),
        make(sizes.places, key_dim),
        make(sizes.places if spans else 0, key_dim),
        make(blocks if spans else 0, key_dim, key_dim),
        make(spans, key_dim, key_dim),
    )
    local.prepare[(blocks * rows,)](
        q, k, w, beta, *made[:7], sizes.length, scale, SQ=apart_q, SK=apart_k, SW=apart_w,
        LEVELS=chunk.bit_length() - 1, H=sizes.values["H"], **sizes.block, **_launch(sizes, "local.prepare"),
    )  # fmt: skip
    if spans:
        carried.carry[(spans * rows,)](
            made.keys, made.P, made.ends, made.after, made.P_span, *sizes.numbers,
            **sizes.block, **_launch(sizes, "carried.carry"),
        )  # fmt: skip
    return made


@operator("reflected_attention")
def forward(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta: Tensor, c: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return o, and for `backward` the logarithms of the sums of weights [B, H, N C] and the split c.

    Arguments are those of `reflected_attention`.
    """
    v, apart = rows_of(v)
    sizes, sums = layout(q, v), sums_of(q, c)
    shape = {"SV": apart, "GATED": c is not None, **sizes.values}
    made = _prepare(q, k, w, beta.contiguous(), v, scale, sizes)
    lefts = torch.empty_like(made.queries)
    within = v.new_empty((sizes.rows, sizes.places, v.shape[3]), dtype=torch.float32)
    lse = v.new_empty((q.shape[0], q.shape[2], sizes.places), dtype=torch.float32)
    o = v.new_empty(v.shape)
    near.read[(sizes.blocks * sizes.rows,)](
        made.queries, made.own, made.keys, made.P, v, sums, lefts, within, lse,
        sizes.length, sizes.blocks, sizes.span, **shape, **_launch(sizes, "near.read"),
    )  # fmt: skip
    far.read[(sizes.tiles * sizes.rows,)](
        lefts, made.ends, made.P_span, v, sums, within, lse, o, sizes.length, *sizes.numbers,
        M=sizes.tile, **shape, **_launch(sizes, "far.read"),
    )  # fmt: skip
    return o, lse, sums


@operator("reflected_attention_backward", differentiable=False)
def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    beta: Tensor,
    sums: Tensor,
    o: Tensor,
    lse: Tensor,
    do: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of q, k, v and w, and of beta and c in float32; [B, 0] for a c that was not given."""
    (v, apart), do, beta = rows_of(v), do.contiguous(), beta.contiguous()
    sizes = layout(q, v)
    made = _prepare(q, k, w, beta, v, scale, sizes)
    met, delta = _walk(made, o, do, sizes)
    seen = Seen(v, sums, lse, delta, do)
    of_spans = _through_spans(seen, made, met, sizes, apart)
    of_blocks, dv = _through_blocks(seen, made, met, of_spans, sizes, apart)
    dq, dk, dw, dbeta = _inside_blocks(q, k, w, beta, made, of_blocks, sizes, scale)
    dc = of_spans.dc[..., : sizes.length].mT.contiguous() if seen.gated else gradient_of_sums(q, sums)
    return dq, dk, dv, dw, dbeta, dc


class Met(NamedTuple):
    """Queries as they meet each block of their span [B H, S - 1, N C, K], and each span [B H, G, N C, K]."""

    near: Tensor
    far: Tensor


class Seen(NamedTuple):
    """Inputs of all kernels of backward: values, split sums, and by query lse, delta and do."""

    v: Tensor
    sums: Tensor
    lse: Tensor
    delta: Tensor
    do: Tensor

    @property
    def gated(self) -> bool:
        """True if there are forget gates."""
        return self.sums.ndim == 4


class OfSpans(NamedTuple):
    """Gradients after the pass through spans.

    They are of queries at their span's start, of keys at its end, of values, of spans' transitions, and of c.
    """

    dqueries: Tensor
    dends: Tensor
    dvalues: Tensor
    dspans: Tensor
    dc: Tensor


class OfBlocks(NamedTuple):
    """Gradients of what `local.prepare` makes: own (`down`), queries, keys and P."""

    down: Tensor
    dqueries: Tensor
    dkeys: Tensor
    dtransitions: Tensor


def _walk(made: Blocks, o: Tensor, do: Tensor, sizes: Layout) -> tuple[Met, Tensor]:
    """Walk queries to the left once more; return them as they meet blocks and spans, and delta [B H, N C]."""
    shape = (sizes.places, sizes.block["K"])
    met = Met(*(o.new_empty(sizes.rows, count, *shape) for count in (sizes.span - 1, sizes.spans)))
    delta = o.new_empty((sizes.rows, sizes.places), dtype=torch.float32)
    near.walk[(sizes.blocks * sizes.rows,)](
        made.queries, made.P, made.P_span, o, do, *met, delta, sizes.length, *sizes.numbers,
        **sizes.values, **_launch(sizes, "near.walk"),
    )  # fmt: skip
    return met, delta


def _through_spans(seen: Seen, made: Blocks, met: Met, sizes: Layout, apart: int) -> OfSpans:
    """Carry gradients of queries back to the start of their span, and sum what keys of spans get."""
    v, rows = seen.v, sizes.rows
    given = OfSpans(
        torch.zeros_like(made.queries),
        torch.empty_like(made.ends, dtype=torch.float32),
        v.new_zeros((rows, sizes.places, v.shape[3]), dtype=torch.float32),
        torch.empty_like(made.P_span),
        torch.zeros_like(seen.lse),
    )
    if not sizes.spans:
        return given
    shape = {"M": sizes.tile, "SV": apart, "GATED": seen.gated, **sizes.values}
    back = torch.empty_like(met.far)
    far.back[(sizes.tiles * rows,)](
        met.far, back, made.ends, made.P_span, *seen, given.dqueries, given.dc,
        sizes.length, *sizes.numbers, **shape, **_launch(sizes, "far.back"),
    )  # fmt: skip
    far.collect[(sizes.spans * sizes.span * sizes.block["C"] // sizes.tile * rows,)](
        met.far, made.ends, *seen, given.dends, given.dvalues, given.dc,
        sizes.length, *sizes.numbers, **shape, **_launch(sizes, "far.collect"),
    )  # fmt: skip
    far.turn[(sizes.spans * rows,)](
        met.far, back, given.dspans, *sizes.numbers, **sizes.block, **_launch(sizes, "far.turn")
    )
    return given


def _through_blocks(
    seen: Seen, made: Blocks, met: Met, given: OfSpans, sizes: Layout, apart: int
) -> tuple[OfBlocks, Tensor]:
    """Carry gradients of queries on to the start of their block, sum what keys get; return dv, too."""
    grid, shape = (sizes.blocks * sizes.rows,), {"SV": apart, "GATED": seen.gated, **sizes.values}
    numbers = (sizes.length, sizes.blocks, sizes.span)
    back = torch.empty_like(met.near)
    near.back[grid](
        met.near, back, made.keys, made.P, *seen, given.dqueries, given.dc, *numbers,
        **shape, **_launch(sizes, "near.back"),
    )  # fmt: skip
    dv, dkeys, dP = seen.v.new_empty(seen.v.shape), torch.empty_like(made.queries), torch.empty_like(made.P)
    down = torch.empty_like(made.Y)
    near.collect[grid](
        met.near, back, made.own, made.keys, *seen, down, dkeys, dP, given.dvalues, dv, given.dc, *numbers,
        **shape, **_launch(sizes, "near.collect"),
    )  # fmt: skip
    if sizes.spans:
        carried.carry_backward[(sizes.spans * sizes.rows,)](
            made.keys, made.P, made.after, given.dends, given.dspans, dkeys, dP, *sizes.numbers,
            **sizes.block, **_launch(sizes, "carried.carry_backward"),
        )  # fmt: skip
    return OfBlocks(down, given.dqueries, dkeys, dP), dv


def _inside_blocks(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    beta: Tensor,
    made: Blocks,
    given: OfBlocks,
    sizes: Layout,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of q, k, w and beta."""
    dq, dk, dw = (x.new_empty(x.shape) for x in (q, k, w))
    dbeta = beta.new_empty(beta.shape, dtype=torch.float32)
    (q, apart_q), (k, apart_k), (w, apart_w) = map(rows_of, (q, k, w))
    chunk = sizes.block["C"]
    squares = made.Y.new_empty(sizes.rows, sizes.blocks, 3, chunk, chunk)
    local.prepare_backward[(sizes.blocks * sizes.rows,)](
        q, k, w, beta, made.M, made.Y, made.U, *given, squares, dq, dk, dw, dbeta, sizes.length, scale,
        SQ=apart_q, SK=apart_k, SW=apart_w, H=sizes.values["H"], **sizes.block,
        **_launch(sizes, "local.prepare_backward"),
    )  # fmt: skip
    return dq, dk, dw, dbeta


@forward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta: Tensor, c: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    batch, length, heads, _ = q.shape
    places = layout(q, v).places
    sums = (
        q.new_empty((batch, 0)) if c is None else q.new_empty((batch, heads, 2, length), dtype=torch.float32)
    )
    return v.new_empty(v.shape), v.new_empty((batch, heads, places), dtype=torch.float32), sums


@backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta: Tensor, sums: Tensor, *_: Any) -> Any:
    dbeta = beta.new_empty(beta.shape, dtype=torch.float32)
    return *(x.new_empty(x.shape) for x in (q, k, v, w)), dbeta, gradient_of_sums(q, sums)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, c, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.type = None if c is None else c.dtype
    ctx.mark_non_differentiable(*output[1:])


def _differentiate(ctx: Any, do: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    q, k, v, w, beta, o, lse, sums = ctx.saved_tensors
    *gradients, dbeta, dc = backward(q, k, v, w, beta, sums, o, lse, do, ctx.scale)
    return *gradients, dbeta.to(beta.dtype), None if ctx.type is None else dc.to(ctx.type), None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def reflected_attention(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, beta: Tensor, c: Tensor | None, scale: float
) -> Tensor:
    """Return o_i = sum_j softmax_j(scale q_i^T H_i ... H_{j+1} k_j + c_i - c_j) v_j over the keys j <= i.

    Args:
        q, k, w: [B, T, H, K], with H_t = I - beta_t w_t w_t^T.
        v: [B, T, H, V].
        beta: [B, T, H].
        c: [B, T, H], sums of logarithms of gates, or None.

    Returns: [B, T, H, V] in the dtype of v.
    """
    o: Tensor = forward(q, k, v, w, beta, None if c is None else to_float32(c), scale)[0]
    return o
