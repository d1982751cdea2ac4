"""Products of stacked matrices. In float32 a GPU makes them of three products of TF32, which keep 22 bits.

Libraries multiply float32 without tensor cores, at a fifteenth of the rate of bfloat16, or in TF32, which
keeps 11 bits. Products with few results and many summands are cut into parts, so that they fill a GPU.

The family is in no identity of a cell: it took the place of `torch.bmm`, from which it differs as one library
does from another, in last bits.
"""

import torch
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import Backend, may_require_grad, uses_triton

__all__ = ["VERSION", "product", "sum_of_products"]

VERSION = 0
"""Version, 0 until a change here changes results by more than last bits."""

_PROGRAMS = 264
"""Programs that fill a large GPU twice: an H100 or H200 has 132 multiprocessors."""

_TILE = 128
"""Rows and columns of an output tile, as a library's product is assumed to choose them."""

_WORTH = 80
"""Multiplications for each number moved from which three products of TF32 are taken.

In one run on an H200 they were 1.2 to 1.9 times as fast as the library's float32 at 92 and more, and slower
or as fast up to 63.
"""

_MANY = 2048
"""Summands from which parts are taken where tiles are few. With 8,192 they took a third of the time."""

_FEWEST_ROWS = 512
"""Summands of a part, at the least: chosen, not measured, so that a part is worth its launch."""


def product(a: Tensor, b: Tensor, *, onto: Tensor | None = None, backend: Backend = "auto") -> Tensor:
    """Return the products of a [R, M, K] and b [R, K, N], [R, M, N] in their dtype.

    Args:
        onto: [R, M, N], contiguous; the products are added to it in place, and it is returned.
        backend: "auto" takes the fastest that runs on this device; Triton multiplies float32 alone.

    Where gradients are recorded, it is the product of torch; with Triton they are the caller's to compute.

    Raises ValueError: shapes or dtypes that do not fit together, or a backend that is not there.
    """
    if a.dim() != 3 or b.dim() != 3 or a.shape[::2] != (b.shape[0], b.shape[1]) or a.dtype != b.dtype:
        shapes = [*map(tuple, (a.shape, b.shape))]
        raise ValueError(f"a [R, M, K] and b [R, K, N] of one dtype, not {shapes}, {a.dtype}, {b.dtype}")
    may_pay = a.dtype == torch.float32 and uses_triton(a, backend)
    if may_pay and (backend == "triton" or (_pays(a, b) and not may_require_grad((a, b)))):
        from linbench.kernels.matmul import triton

        return triton.product(a, b, onto)
    return torch.bmm(a, b) if onto is None else onto.baddbmm_(a, b)


def _pays(a: Tensor, b: Tensor) -> bool:
    """Return whether tensor cores pay for float32.

    They do where there are many operations for each number that is moved, or where tiles are too few for a
    GPU while there are many summands.
    """
    (replicas, rows, summands), columns = a.shape, b.shape[2]
    moved = rows * summands + summands * columns + rows * columns
    tiles = replicas * -(-rows // _TILE) * -(-columns // _TILE)
    return rows * summands * columns >= _WORTH * moved or (tiles < _PROGRAMS // 2 and summands >= _MANY)


def sum_of_products(dy: Tensor, x: Tensor, *, backend: Backend = "auto") -> Tensor:
    """Return the sum over N of products of dy [R, N, O] and x [R, N, D]: [R, O, D], a weight's gradient.

    If its tiles are too few for a GPU, N is cut into as many parts as fill one, whose sum is taken in at
    least float32.
    """
    if backend == "triton" and dy.dtype == torch.float32:
        return product(dy.mT, x, backend=backend)
    replicas, rows, outputs = dy.shape
    parts, tiles = 1, replicas * -(-outputs // _TILE) * -(-x.shape[2] // _TILE)
    while parts * tiles < _PROGRAMS and rows % (2 * parts) == 0 and rows // (2 * parts) >= _FEWEST_ROWS:
        parts *= 2
    cut = [given.reshape(replicas * parts, rows // parts, given.shape[2]) for given in (dy, x)]
    made = torch.bmm(cut[0].mT, cut[1])
    return (
        made
        if parts == 1
        else made.view(replicas, parts, outputs, -1).sum(dim=1, dtype=at_least_float32(made.dtype))
    )
