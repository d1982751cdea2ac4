"""The embedding on a GPU.

Backward, positions are sorted by the row they took, and runs of the same row are summed: no atomics, the same
sum every time. Sorted positions are taken a chunk at a time. Within a chunk all runs are summed at once, by a
product with a matrix of zeros and ones. A run that reaches into the next chunk stores one part for each of
its chunks, and the program of its first chunk adds them up: however many positions share a row, the work is
spread over the chunks. A number that is not finite spoils the gradients of other rows in its chunk, too.

Replicas have chunks of their own, whose size does not depend on how many replicas there are: each is to the
bit what it is alone.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from linbench.kernels.matrix_state.triton.tiles import sum_dot
from linbench.kernels.operators import fold_replicas, operator

KEYS = torch.int16, torch.int32, torch.int64
"""Dtypes of the sort's keys.

The narrowest that fits is taken, since each byte is one more pass of a radix sort.
"""


@triton.jit
def _gather(weight, index, y, rows, V, D, tiles, ROWS: tl.constexpr, BD: tl.constexpr):
    """Copy rows to y [replicas * rows, D]; NaN for an index out of range. Grid (replicas * tiles, D / BD).

    Takes weight [replicas, V, D] and index [replicas * rows].
    """
    program = tl.program_id(0).to(tl.int64)
    replica = program // tiles
    row = program % tiles * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * BD + tl.arange(0, BD)[None, :]
    place, mask = replica * rows + row, (row < rows) & (column < D)
    taken = tl.load(index + place, mask=row < rows, other=0)
    known = (taken >= 0) & (taken < V)
    x = tl.load(weight + (replica * V + taken) * D + column, mask=mask & known, other=0.0)
    tl.store(
        y + place * D + column,
        tl.where(known, x.to(tl.float32), float("nan")).to(y.dtype.element_ty),
        mask=mask,
    )


@triton.jit
def _key(index, keys, rows, V, tiles, ROWS: tl.constexpr):
    """Store keys [replicas * rows]: replica * (V + 1) + index, with V for an index out of range.

    So replicas stay apart in the sort. Grid (replicas * tiles).
    """
    program = tl.program_id(0).to(tl.int64)
    replica = program // tiles
    row = program % tiles * ROWS + tl.arange(0, ROWS)
    place = replica * rows + row
    taken = tl.load(index + place, mask=row < rows, other=0)
    key = replica * (V + 1) + tl.where((taken >= 0) & (taken < V), taken, V)
    tl.store(keys + place, key.to(keys.dtype.element_ty), mask=row < rows)


@triton.jit
def _borders(keys, chunk, rows, C: tl.constexpr):
    """Return the keys just before and just after a chunk of a replica, -1 if there is none."""
    before = tl.load(keys + chunk * C - 1, mask=chunk > 0, other=-1)
    after = tl.load(keys + (chunk + 1) * C, mask=(chunk + 1) * C < rows, other=-1)
    return before, after


@triton.jit
def _sum_chunk(keys, order, dy, dweight, first, last, rows, V, D, chunks, C: tl.constexpr, BD: tl.constexpr):
    """Sum the runs of a chunk. Grid (replicas * chunks, D / BD).

    A run's sum goes to dweight [replicas, V, D] if the run lies in this chunk, else to first [replicas *
    chunks, D] if it began in a chunk before, else to last. Takes keys and order [replicas * rows] and dy
    [replicas * rows, D].
    """
    program = tl.program_id(0).to(tl.int64)
    replica, chunk = program // chunks, program % chunks
    keys, order = keys + replica * rows, order + replica * rows
    row = chunk * C + tl.arange(0, C)
    column = tl.program_id(1) * BD + tl.arange(0, BD)[None, :]
    here = row < rows
    key = tl.load(keys + row, mask=here, other=-1)
    place = tl.load(order + row, mask=here, other=0)
    x = tl.load(dy + place[:, None] * D + column, mask=here[:, None] & (column < D), other=0.0).to(tl.float32)
    total = sum_dot(key[:, None] == key[None, :], x, tl.float32)
    before, after = _borders(keys, chunk, rows, C)
    previous = tl.load(keys + row - 1, mask=here & (row > chunk * C), other=-1)
    taken = key.to(tl.int64) - replica * (V + 1)
    head = here & (key != previous) & (taken < V)
    whole = head & (key != before) & (key != after)
    tl.store(
        dweight + (replica * V + taken[:, None]) * D + column,
        total.to(dweight.dtype.element_ty),
        mask=whole[:, None] & (column < D),
    )
    part = tl.broadcast_to(program * D + column, [C, BD])
    tl.store(first + part, total, mask=(head & (key == before))[:, None] & (column < D))
    tl.store(last + part, total, mask=(head & (key != before) & (key == after))[:, None] & (column < D))


@triton.jit
def _sum_run(
    keys, dweight, first, last, rows, V, D, chunks, C: tl.constexpr, BD: tl.constexpr, PARTS: tl.constexpr
):
    """Sum the run that begins in a chunk and reaches into the next, PARTS of its parts at a time.

    Grid (replicas * chunks, D / BD).
    """
    program = tl.program_id(0).to(tl.int64)
    replica, chunk = program // chunks, program % chunks
    keys += replica * rows
    before, after = _borders(keys, chunk, rows, C)
    end = tl.load(keys + tl.minimum((chunk + 1) * C, rows) - 1)
    taken = end.to(tl.int64) - replica * (V + 1)
    if (end == after) & (end != before) & (taken < V):
        column = tl.program_id(1) * BD + tl.arange(0, BD)
        total = tl.zeros([PARTS, BD], tl.float32)
        start = chunk + 1
        while tl.load(keys + start * C, mask=start < chunks, other=-1) == end:
            other = start + tl.arange(0, PARTS)
            same = tl.load(keys + other * C, mask=other < chunks, other=-1) == end
            part = (replica * chunks + other)[:, None] * D + column[None, :]
            total += tl.load(first + part, mask=same[:, None] & (column < D)[None, :], other=0.0)
            start += PARTS
        whole = tl.load(last + program * D + column, mask=column < D, other=0.0) + tl.sum(total, axis=0)
        tl.store(
            dweight + (replica * V + taken) * D + column, whole.to(dweight.dtype.element_ty), mask=column < D
        )


class Launch(NamedTuple):
    """Sizes of launches.

    Args:
        columns: width of a block.
        rows: rows of a tile, forward.
        chunk: positions of a chunk, backward.
        narrow, parts: width of a block where a run's parts are summed, and parts taken at a time.
    """

    columns: int
    rows: int
    chunk: int
    narrow: int
    parts: int


def launch(rows: int, width: int) -> Launch:
    """Return the sizes of launches for a replica's `rows` positions.

    Chunks have 64 positions, of which four fit a multiprocessor, or fewer, but at least 16, so that there are
    256 chunks.
    """
    columns = max(16, min(64, _power_of_two(width)))
    narrow = min(columns, 32)
    return Launch(
        columns,
        2048 // columns,
        max(16, min(64, _power_of_two(rows // 256 + 1) // 2)),
        narrow,
        8192 // narrow,
    )


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


@operator("embedding")
def forward(weight: Tensor, index: Tensor) -> Tensor:
    """Return rows [N, D] of weight [replicas, V, D] by index [N], with `replicas` dividing N."""
    weight, index = weight.contiguous(), index.contiguous()
    replicas, vocabulary, width = weight.shape
    rows = len(index) // replicas
    rule = launch(rows, width)
    tiles = -(-rows // rule.rows)
    y = weight.new_empty(len(index), width)
    grid = replicas * tiles, -(-width // rule.columns)
    _gather[grid](
        weight, index, y, rows, vocabulary, width, tiles, ROWS=rule.rows, BD=rule.columns, num_warps=4
    )
    return y


@operator("embedding_backward", differentiable=False)
def backward(dy: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of weight [replicas, V, D], of which only shape and dtype are read.

    Takes dy [N, D] and index [N].
    """
    dy, index = dy.contiguous(), index.contiguous()
    replicas, vocabulary, width = weight.shape
    rows = len(index) // replicas
    rule = launch(rows, width)
    tiles, chunks = -(-rows // 1024), -(-rows // rule.chunk)
    narrowest = next(dtype for dtype in KEYS if replicas * (vocabulary + 1) <= torch.iinfo(dtype).max + 1)
    keys = torch.empty_like(index, dtype=narrowest)
    _key[(replicas * tiles,)](index, keys, rows, vocabulary, tiles, ROWS=1024, num_warps=4)
    keys, order = torch.sort(keys, stable=True)
    dweight = weight.new_zeros(weight.shape)
    first, last = dy.new_empty(2, replicas * chunks, width, dtype=torch.float32)
    sizes = rows, vocabulary, width, chunks
    grid = replicas * chunks, -(-width // rule.columns)
    _sum_chunk[grid](
        keys, order, dy, dweight, first, last, *sizes, C=rule.chunk, BD=rule.columns, num_warps=4
    )
    grid = replicas * chunks, -(-width // rule.narrow)
    _sum_run[grid](
        keys, dweight, first, last, *sizes, C=rule.chunk, BD=rule.narrow, PARTS=rule.parts, num_warps=4
    )
    return dweight


@forward.register_fake
def _(weight: Tensor, index: Tensor) -> Tensor:
    return weight.new_empty(len(index), weight.shape[2])


@backward.register_fake
def _(dy: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    return weight.new_empty(weight.shape)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    weight, index = inputs
    ctx.save_for_backward(index, weight)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
    return backward(dy, *ctx.saved_tensors), None


forward.register_autograd(_differentiate, setup_context=_save)
fold_replicas(forward)
fold_replicas(backward)


def embedding(weight: Tensor, index: Tensor) -> Tensor:
    """Return weight[index]; arguments are those of the door."""
    y: Tensor = forward(weight[None], index.flatten())
    return y.view(*index.shape, weight.shape[1])
