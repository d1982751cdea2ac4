"""Products of matrices that a library leaves most of a GPU idle in."""

import torch
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32

_PROGRAMS = 264
"""That fill a large GPU twice."""

_TILE = 128
_FEWEST_ROWS = 512


def over_rows(dy: Tensor, x: Tensor) -> Tensor:
    """dy [R, N, O], x [R, N, D] -> sum over N of their products [R, O, D], as the gradient of a weight is.
    Where these are few for a GPU, N is cut into as many parts as fill one, and their sum is taken in at least
    float32."""
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
