"""Random rotations as products of reflections.

All is elementwise or a sum along one axis, so examples have the same bits in any batch, and nothing waits for
a device.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

__all__ = ["orthonormal", "rotate"]


def orthonormal(normals: Tensor) -> Tensor:
    """Return orthonormal vectors [B, N, D]: the first N rows of a uniform (Haar) rotation or reflection.

    The first vector has the direction of the first row of `normals`. The others are drawn in the axes that
    are left, and a reflection takes these to the directions at right angles to the first.

    Args:
        normals: independent draws from N(0, 1), [B, N, D] with N <= D, in float64.
    """
    count = normals.shape[1]
    found = normals[:, :0, count:]
    for first in reversed(range(count)):
        direction = normals[:, first, None, first:]
        found = torch.cat([normalize(direction, dim=2), _reflect(pad(found, (1, 0)), direction)], dim=1)
    return found


def rotate(x: Tensor, normals: Tensor) -> Tensor:
    """Return vectors x [B, N, D] after a rotation that takes the axes to random directions.

    Args:
        x: the vectors.
        normals: independent draws from N(0, 1), [B, D, D].
    """
    # reflections that send an axis to a random direction among those left: together a uniform rotation
    for first in range(x.shape[2] - 1):
        left = _reflect(x[..., first:], normals[:, first, None, first:])
        x = torch.cat([x[..., :first], left], dim=2)
    return x


def _reflect(x: Tensor, direction: Tensor) -> Tensor:
    """Return x [B, N, L] after the reflection that sends the first axis to a direction [B, 1, L]."""
    mirror = torch.cat([direction[..., :1] - direction.norm(dim=2, keepdim=True), direction[..., 1:]], dim=2)
    return x - 2 * mirror * (x * mirror).sum(dim=2, keepdim=True) / mirror.square().sum(dim=2, keepdim=True)
