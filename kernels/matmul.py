"""Products of matrices with few outputs and many summands, in which libraries leave most of a GPU idle."""

import torch
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32

_PROGRAMS = 264
"""Programs that fill a large GPU twice: an H100 or H200 has 132 multiprocessors."""

_TILE = 128
"""Rows and columns of an output tile, as a library's product is assumed to choose them."""

_FEWEST_ROWS = 512
"""Summands of a part, at the least: chosen, not measured, so that a part is worth its launch."""


def split_k_matmul(dy: Tensor, x: Tensor) -> Tensor:
    """Return the sum over N of products of dy [R, N, O] and x [R, N, D]: [R, O, D], a weight's gradient.

    If its tiles are too few for a GPU, N is cut into as many parts as fill one, whose sum is taken in at
    least float32.
    """
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
