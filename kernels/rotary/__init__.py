"""Rotary positions: pairs of channels turned by an angle that grows with the token's position."""

from torch import Tensor

from linbench.kernels.operators import Backend, uses_triton
from linbench.kernels.rotary.eager import eager

__all__ = ["VERSION", "rotate"]

VERSION = 0
"""Version, 0 until a change here changes results.

From then on it is part of the identity of every cell that uses this family.
"""


def rotate(x: Tensor, cos: Tensor, sin: Tensor, *, backend: Backend = "auto") -> Tensor:
    """Turn channels i and i + D/2 of every head by the angle of their token, arXiv:2104.09864.

    The result is (x_i cos - x_{i+D/2} sin, x_i sin + x_{i+D/2} cos).

    Args:
        x: [B, T, H, D], D even.
        cos, sin: [B or 1, T, D/2] of the angles, in at least float32. Only the torch form differentiates
            them.
        backend: "auto" takes the fastest that runs on this device.

    Returns: shape and dtype of x. Inside, at least float32.

    Raises ValueError: shapes that do not fit together, a backend that is not there or does not run on x.
    """
    batch, length, _, width = x.shape
    if (
        width % 2
        or cos.shape != sin.shape
        or cos.shape not in {(batch, length, width // 2), (1, length, width // 2)}
    ):
        raise ValueError(
            "x [B, T, H, D] with D even, cos and sin [B or 1, T, D/2], not"
            f" {[*map(tuple, (x.shape, cos.shape, sin.shape))]}"
        )
    if cos.requires_grad or not uses_triton(x, backend):
        return eager(x, cos, sin)
    from linbench.kernels.rotary import triton

    return triton.rotate(x, cos, sin)
