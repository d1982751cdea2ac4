"""DeltaFormer's corrected values on a GPU, forward and back to the values: a triangular system by blocks.

    u = v - beta P u,  P softmax over strictly earlier keys       g = du - P^T beta g

What P weighs needs no u: the logarithms of sums of weights, and the inverse of each block's own system, are
made for all blocks at once (`_prepare`). The rest is done in an order in which few launches wait for each
other (`steps`): some blocks are solved one after the other (`_solve`); then many of the next read many of
those that are done, all at once (`_update`). Every pair of blocks meets once, no matrix of all queries and
keys is laid in memory, and nothing is added by several programs at once. Backward is the same from the end,
with P transposed. Zhong et al. 2025, arXiv:2505.19488.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.attention.triton.gated import place_of_block, rows_of
from linbench.kernels.matrix_state.triton.chunk import place_in_grid
from linbench.kernels.matrix_state.triton.decay import to_base_2
from linbench.kernels.matrix_state.triton.launch import TYPES, power_of_two
from linbench.kernels.matrix_state.triton.scores import unit_triangular_inverse
from linbench.kernels.matrix_state.triton.tiles import (
    dot,
    load_rows,
    load_square,
    load_square_transposed,
    load_transposed,
    store_rows,
    store_square,
    wide_dot,
)

BLOCK = 64
"""Most tokens of a block, as in attention with gates (`gated`)."""

TOGETHER = 256
"""Tokens that a program solves block after block: chosen, not measured.

More of them are fewer launches, which wait longer.
"""


@triton.jit
def scores(a, b, i, end, ks, scale, STRIDE: tl.constexpr, K: tl.constexpr, DT: tl.constexpr):
    """Return scores to base 2 of rows a [C, K] with the first `end` rows of b, which lie STRIDE apart."""
    return dot(a, load_transposed(b, i, end, STRIDE, ks, K), DT) * to_base_2(scale)


@triton.jit
def _prepare(
    q, k, beta, lse, inverses, T, scale,
    H: tl.constexpr, K: tl.constexpr, SQ: tl.constexpr, SK: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, LEVELS: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute lse [B, H, T], the logarithm to base 2 of the sum of weights, and inverses [B, H, N, C, C].

    A token that has none before it weighs nothing: its lse is infinite. Of an inverse, whose diagonal is one,
    what is below that is stored: what is not corrected stays as it is, to the last digit. Grid (T / C of
    every B H). q, k [B, T, H, K] have tokens SQ and SK apart; beta [B, T, H].
    """
    first, sequence, head, bh = place_of_block(T, H, C, True)
    i, ks = tl.arange(0, C), tl.arange(0, BK)
    here, end = sequence + first, T - first
    q_m = load_rows(q + here * SQ + head * K, i, end, SQ, ks, K)
    most, total = tl.full([C], float("-inf"), tl.float32), tl.zeros([C], tl.float32)
    for n in range(0, first, C):
        s = scores(q_m, k + (sequence + n) * SK + head * K, i, T - n, ks, scale, SK, K, DT)
        more = tl.maximum(most, tl.max(s, axis=1))
        total = total * tl.exp2(most - more) + tl.sum(tl.exp2(s - more[:, None]), axis=1)
        most = more
    s = scores(q_m, k + here * SK + head * K, i, end, ks, scale, SK, K, DT)
    s = tl.where(i[:, None] > i[None, :], s, float("-inf"))
    more = tl.maximum(most, tl.max(s, axis=1))
    above = tl.where(more == float("-inf"), 0.0, more)  # of the first token
    total = total * tl.exp2(most - above) + tl.sum(tl.exp2(s - above[:, None]), axis=1)
    lse_m = tl.where(total > 0, above + tl.log2(tl.maximum(total, 1.0)), float("inf"))
    tl.store(lse + bh * T + first + i, lse_m, mask=i < end)
    beta_m = tl.load(beta + here * H + head + i * H, mask=i < end, other=0.0)
    inverse = unit_triangular_inverse(beta_m[:, None] * tl.exp2(s - lse_m[:, None]), i, LEVELS, False, DT)
    inverse = tl.where(i[:, None] == i[None, :], 0.0, inverse)
    store_square(inverses + (bh * tl.cdiv(T, C) + first // C) * C * C, C, inverse)


@triton.jit
def _read(
    read, a, lse_a, other, lse, beta, x, sequence, head, bh, start, end, T, i, ks, vs, scale,
    STRIDE: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr,
    BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Add to `read` [C, V] what a block reads of x [B, T, H, V] from `start` to `end`.

    Forward a are queries, `other` keys and x is u; BACK, a are keys, `other` queries and x is g.
    """
    for n in range(start, end, C):
        s = scores(a, other + (sequence + n) * STRIDE + head * K, i, T - n, ks, scale, STRIDE, K, DT)
        x_n = load_rows(x + ((sequence + n) * H + head) * V, i, T - n, H * V, vs, V)
        if BACK:
            there = i < T - n
            s -= tl.load(lse + bh * T + n + i, mask=there, other=float("inf"))[None, :]
            x_n = x_n * tl.load(beta + (sequence + n + i) * H + head, mask=there, other=0.0)[:, None]
        else:
            s -= lse_a[:, None]
        read = dot(tl.exp2(s).to(DT), x_n.to(DT), DT, read)
    return read


@triton.jit
def _solved(done, count, T, C: tl.constexpr, BACK: tl.constexpr):
    """Return where the last `count` of the `done` blocks that are solved begin, and where they end."""
    start = (tl.cdiv(T, C) - done if BACK else done - count) * C
    return start, start + count * C


@triton.jit(do_not_specialize=["done", "count", "later"])
def _update(
    a, other, lse, beta, x, read, T, scale, done, count, later,
    SA: tl.constexpr, SO: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Add to what the next blocks read [B, T, H, V] that of the last `count` of the `done` solved ones.

    Grid (`later` blocks of every B H). a, other and x as in `_read`.
    """
    number, bh = place_in_grid(later)
    sequence, head = bh // H * T, bh % H
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    first, _ = _solved(done + number + 1, 1, T, C, BACK)
    here, end = sequence + first, T - first
    a_m = load_rows(a + here * SA + head * K, i, end, SA, ks, K)
    lse_m = tl.load(lse + bh * T + first + i, mask=i < end, other=float("inf"))
    read_m = read + (here * H + head) * V
    start, stop = _solved(done, count, T, C, BACK)
    sum_m = _read(
        load_rows(read_m, i, end, H * V, vs, V), a_m, lse_m, other, lse, beta, x, sequence, head, bh,
        start, stop, T, i, ks, vs, scale, SO, H, K, V, C, BACK, DT,
    )  # fmt: skip
    store_rows(read_m, i, end, H * V, vs, V, sum_m)


@triton.jit(do_not_specialize=["done"])
def _solve(
    a, other, lse, beta, given, x, read, inverses, T, scale, done,
    SA: tl.constexpr, SO: tl.constexpr, SG: tl.constexpr, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, COUNT: tl.constexpr,
    BACK: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """Compute x, u of v or BACK g of du (`given`) [B, T, H, V], of COUNT blocks after the `done` solved ones.

    What these read of each other is added to `read`, but for what a block reads of itself. Grid (B H).
    """
    bh = tl.program_id(0).to(tl.int64)
    sequence, head, blocks = bh // H * T, bh % H, tl.cdiv(T, C)
    i, ks, vs = tl.arange(0, C), tl.arange(0, BK), tl.arange(0, BV)
    for at in range(done, tl.minimum(done + COUNT, blocks)):
        first, _ = _solved(at + 1, 1, T, C, BACK)
        here, end = sequence + first, T - first
        values = (here * H + head) * V
        a_m = load_rows(a + here * SA + head * K, i, end, SA, ks, K)
        lse_m = tl.load(lse + bh * T + first + i, mask=i < end, other=float("inf"))
        start, stop = _solved(at, at - done, T, C, BACK)
        read_m = _read(
            load_rows(read + values, i, end, H * V, vs, V), a_m, lse_m, other, lse, beta, x, sequence, head,
            bh, start, stop, T, i, ks, vs, scale, SO, H, K, V, C, BACK, DT,
        )  # fmt: skip
        given_m = load_rows(given + here * SG + head * V, i, end, SG, vs, V).to(tl.float32)
        own = inverses + (bh * blocks + first // C) * C * C
        if BACK:
            y = given_m - read_m
            x_m = wide_dot(load_square_transposed(own, C), y, DT, y)
        else:
            store_rows(read + values, i, end, H * V, vs, V, read_m)
            beta_m = tl.load(beta + here * H + head + i * H, mask=i < end, other=0.0)
            y = given_m - beta_m[:, None] * read_m
            x_m = wide_dot(load_square(own, C), y, DT, y)
        store_rows(x + values, i, end, H * V, vs, V, x_m)
        tl.debug_barrier()  # other threads will read it


class Blocks(NamedTuple):
    """A call's queries, keys and strengths, what is known of its blocks, and parameters of its launches.

    q, k: [B, T, H, K], with tokens `apart`. beta: [B, T, H] in float32. lse: [B, H, T]. inverses: [B, H, N,
    C, C], zero on the diagonal.
    """

    q: Tensor
    k: Tensor
    beta: Tensor
    lse: Tensor
    inverses: Tensor
    scale: float
    apart: tuple[int, int]
    sizes: dict[str, Any]

    @property
    def rows(self) -> int:
        """The number of recurrences, B H."""
        return self.lse.shape[0] * self.lse.shape[1]

    @property
    def of_each(self) -> int:
        """The number of blocks of each."""
        return self.inverses.shape[2]


def blocks_shape(k: Tensor, v: Tensor) -> tuple[int, ...]:
    """Return the shape of the inverses [B, H, N, C, C].

    A block has 64 tokens, in float32 32 and of wide heads 16: what the assembler has registers for.
    """
    batch, length, heads, _ = k.shape
    most = BLOCK
    if v.dtype == torch.float32:
        most = min(BLOCK, 16 if is_wide(k, v) else 32)
    block = min(power_of_two(length), most)
    return batch, heads, -(-length // block), block, block


def is_wide(k: Tensor, v: Tensor) -> bool:
    """Tell whether heads are wide, so that tiles fill the registers and few kernels can load ahead."""
    return max(k.shape[3], v.shape[3]) > 64


def blocks_of(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, lse: Tensor, inverses: Tensor, scale: float
) -> Blocks:
    """Return the blocks of a call."""
    (q, apart_q), (k, apart_k) = rows_of(q), rows_of(k)
    sizes = {
        "H": k.shape[2],
        "K": k.shape[3],
        "C": inverses.shape[3],
        "BK": power_of_two(k.shape[3]),
        "DT": TYPES[v.dtype],
        "num_warps": _warps(k, v),
        "num_stages": _stages(k, v),
    }
    return Blocks(q, k, beta.contiguous(), lse, inverses, scale, (apart_q, apart_k), sizes)


def _warps(k: Tensor, v: Tensor) -> int:
    """Return the warps of a program.

    Of four, Triton 3.6 makes wrong values on Hopper where these are narrower than keys, in 16 bits.
    """
    narrow_values = power_of_two(v.shape[3]) < power_of_two(k.shape[3]) and v.dtype != torch.float32
    return 8 if narrow_values else 4


def _stages(k: Tensor, v: Tensor) -> int:
    """Return how many steps of their loops kernels load at once: one where tiles fill the registers.

    Triton 3.6 makes wrong gradients on Hopper of one stage, for narrow keys beside wide values in 16 bits.
    """
    narrow_keys = k.shape[3] <= 64 and v.dtype != torch.float32
    return 1 if is_wide(k, v) and not narrow_keys else 2


def prepare(blocks: Blocks) -> None:
    """Fill lse and inverses."""
    q, k, beta, lse, inverses, scale, (apart_q, apart_k), sizes = blocks
    grid = (blocks.of_each * blocks.rows,)
    levels = inverses.shape[3].bit_length() - 1
    sizes = sizes | _ahead(q)
    _prepare[grid](
        q, k, beta, lse, inverses, q.shape[1], scale, SQ=apart_q, SK=apart_k, LEVELS=levels, **sizes
    )


def _ahead(x: Tensor) -> dict[str, int]:
    """Return the stages of kernels with one product to a block of registers, which load ahead in 16 bits."""
    return {} if x.dtype == torch.float32 else {"num_stages": 2}


def solve(blocks: Blocks, given: Tensor, *, back: bool = False) -> tuple[Tensor, Tensor]:
    """Return u of v = `given` [B, T, H, V], or with `back` g of du, and what blocks read of those before.

    What is read [B, T, H, V] is in float32, and backward of those after; what a block reads of itself is
    missing.
    """
    given, apart = rows_of(given)
    x = given.new_empty(given.shape)
    read = given.new_zeros(given.shape, dtype=torch.float32)
    a, other, apart_a, apart_other = blocks.q, blocks.k, *blocks.apart
    if back:
        a, other, apart_a, apart_other = other, a, apart_other, apart_a
    length, value_dim = given.shape[1], given.shape[3]
    sizes = {**blocks.sizes, "V": value_dim, "BV": power_of_two(value_dim), "SA": apart_a, "SO": apart_other}
    known = (a, other, blocks.lse, blocks.beta)
    together = max(1, TOGETHER // sizes["C"])
    # a program of `_solve` reads what it has just stored, so nothing may be loaded ahead there
    for done, count, later in steps(blocks.of_each, together):
        _solve[(blocks.rows,)](
            *known, given, x, read, blocks.inverses, length, blocks.scale, done,
            SG=apart, COUNT=together, BACK=back, **sizes | {"num_stages": 1},
        )  # fmt: skip
        if later:
            _update[(later * blocks.rows,)](
                *known, x, read, length, blocks.scale, done + together, count, later,
                BACK=back, **sizes | _ahead(given),
            )  # fmt: skip
    return x, read


def steps(blocks: int, together: int) -> Iterator[tuple[int, int, int]]:
    """Yield the order in which blocks are solved and read.

    Yields: how many blocks are solved before the next `together` of them; and then, when these are solved
    too, how many of the last are read, by how many of the next. Both are halves of what begins at a multiple
    of its own size.
    """
    for done in range(0, blocks, together):
        after = done + together
        count = after & -after
        yield done, count, max(0, min(count, blocks - after))
