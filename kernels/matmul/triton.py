"""Products of float32 matrices on a GPU: each is the sum of three products of TF32, which keep 22 bits.

A program computes one tile of one product. Where tiles are too few for a GPU, the summands are cut into
parts with programs of their own, and parts are added in their order.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.matrix_state.triton.tiles import dot
from linbench.kernels.operators import fold_replicas, is_traced, operator

_PROGRAMS = 132
"""Programs that fill a large GPU: the multiprocessors of an H100 or H200."""

_FEWEST = 256
"""Summands of a part, at the least: chosen, not measured, so that a part is worth its program."""


class Launch(NamedTuple):
    """Sizes of a launch: tiles of `rows` x `columns`, `depth` summands at a time, in `parts` parts."""

    rows: int
    columns: int
    depth: int
    parts: int
    warps: int
    stages: int


def launch(replicas: int, rows: int, columns: int, summands: int) -> Launch:
    """Return the launch of products [replicas, rows, columns] of so many summands."""
    tile_rows, tile_columns = _tile(rows, 128), _tile(columns, 64)
    tiles = replicas * -(-rows // tile_rows) * -(-columns // tile_columns)
    parts = 1
    while tiles * parts < _PROGRAMS and summands // (2 * parts) >= _FEWEST:
        parts *= 2
    warps = 4 if tile_rows * tile_columns >= 4096 else 2
    return Launch(tile_rows, tile_columns, 32, parts, warps, 3)


def _tile(length: int, most: int) -> int:
    return max(16, min(most, 1 << (length - 1).bit_length()))


@triton.jit
def _float32_product(
    a, b, c, M, N, K, part, parts,
    a_replica, a_row, a_column, b_replica, b_row, b_column,
    ONTO: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute a part of c [R * parts, M, N], or add to it. Grid (tiles, R * parts)."""
    tile, program = tl.program_id(0), tl.program_id(1).to(tl.int64)
    across = tl.cdiv(N, BN)
    replica = program // parts
    first = (program % parts).to(tl.int32) * part
    end = tl.minimum(first + part, K)
    row = tile // across * BM + tl.arange(0, BM)
    column = tile % across * BN + tl.arange(0, BN)
    a_at = a + replica * a_replica + row.to(tl.int64)[:, None] * a_row
    b_at = b + replica * b_replica + column.to(tl.int64)[None, :] * b_column
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(first, end, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(
            a_at + k.to(tl.int64)[None, :] * a_column, mask=(row < M)[:, None] & (k < end)[None, :], other=0.0
        )
        right = tl.load(
            b_at + k.to(tl.int64)[:, None] * b_row, mask=(k < end)[:, None] & (column < N)[None, :], other=0.0
        )
        total += dot(left, right, tl.float32)  # tensor cores cut off bits of long sums
    c_at = c + (program * M + row.to(tl.int64)[:, None]) * N + column[None, :]
    inside = (row < M)[:, None] & (column < N)[None, :]
    if ONTO:
        total += tl.load(c_at, mask=inside, other=0.0)
    tl.store(c_at, total, mask=inside)


@operator("float32_product", differentiable=False)
def _made(a: Tensor, b: Tensor) -> Tensor:
    """Return the products [R, M, N] of a [R, M, K] and b [R, K, N]."""
    replicas, rows, summands = a.shape
    columns = b.shape[2]
    how = launch(replicas, rows, columns, summands)
    c = a.new_empty(replicas, how.parts, rows, columns)
    _launch(a, b, c, how, onto=False)
    return c[:, 0] if how.parts == 1 else c.sum(dim=1)


@_made.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], a.shape[1], b.shape[2])


fold_replicas(_made)


def product(a: Tensor, b: Tensor, onto: Tensor | None) -> Tensor:
    """Return the products of a [R, M, K] and b [R, K, N], or add them to `onto` [R, M, N]."""
    if onto is None:
        made: Tensor = _made(a, b)
        return made
    how = launch(a.shape[0], a.shape[1], b.shape[2], a.shape[2])
    if how.parts > 1 or is_traced():
        return onto.add_(_made(a, b))
    _launch(a, b, onto, how, onto=True)
    return onto


def _launch(a: Tensor, b: Tensor, c: Tensor, how: Launch, *, onto: bool) -> None:
    (replicas, rows, summands), columns = a.shape, b.shape[2]
    tiles = -(-rows // how.rows) * -(-columns // how.columns)
    part = -(-summands // how.parts)
    part = -(-part // how.depth) * how.depth
    _float32_product[(tiles, replicas * how.parts)](
        a, b, c, rows, columns, summands, part, how.parts, *a.stride(), *b.stride(),
        ONTO=onto, BM=how.rows, BN=how.columns, BK=how.depth, num_warps=how.warps, num_stages=how.stages,
    )  # fmt: skip
