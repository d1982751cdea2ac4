"""Rotary positions: pairs of channels turned by an angle that grows with the token's position."""

from collections.abc import Sequence

import torch
from torch import Tensor

from linbench.kernels.dtypes import at_least_float32
from linbench.kernels.operators import Backend, is_traced, may_require_grad, uses_triton
from linbench.kernels.rotary.eager import eager

__all__ = ["VERSION", "angles", "frequencies", "rotate", "rotate_at", "rotate_first"]

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


def rotate_first(x: Tensor, cos: Tensor, sin: Tensor, *, backend: Backend = "auto") -> Tensor:
    """Turn the first channels of heads x [B, T, H, D], as many as there are angles for, as `rotate` does."""
    dims = 2 * cos.shape[-1]
    if dims == x.shape[-1]:
        return rotate(x, cos, sin, backend=backend)
    return torch.cat([rotate(x[..., :dims], cos, sin, backend=backend), x[..., dims:]], dim=-1)


def angles(positions: Tensor, dim: int, dtype: torch.dtype, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Return cosine and sine [B or 1, T, dim/2] of rotary angles p * base^(-2i/dim). arXiv:2104.09864.

    Args:
        positions: integers [B or 1, T].
        dim: dimension of a head, even.
        dtype: of the result.
        base: of the geometric frequencies.
    """
    frequency = frequencies(dim, positions.device, dtype, base)
    angle = positions[:, :, None].to(dtype) * frequency
    return angle.cos(), angle.sin()


def frequencies(dim: int, device: torch.device, dtype: torch.dtype, base: float = 10_000.0) -> Tensor:
    """Return the angles base^(-2i/dim) [dim/2] by which rotary positions turn from one token to the next."""
    half = dim // 2
    return base ** (-torch.arange(half, device=device, dtype=dtype) / half)


def rotate_at(
    parts: Sequence[Tensor],
    positions: Tensor,
    dims: int,
    *,
    base: float = 10_000.0,
    backend: Backend = "auto",
) -> tuple[Tensor, ...]:
    """Turn the first `dims` channels of heads by rotary angles of their positions, as `angles` has them.

    For one token without a gradient, as in decoding, Triton makes the angles in the launch that turns it.

    Args:
        parts: each [B, T, H, D], such as q and k of the same tokens. They may differ in H and D.
        positions: integers [B or 1, T].
        dims: even, at most D.
        base: of the geometric frequencies.
        backend: "auto" takes the fastest that runs on this device.

    Returns: all parts, each with its shape and dtype. Inside, at least float32.

    Raises ValueError: shapes that do not fit together, a backend that is not there or does not run on a part.
    """
    for x in parts:
        batch, length, _, width = x.shape
        if dims % 2 or not 0 < dims <= width or tuple(positions.shape) not in {(batch, length), (1, length)}:
            raise ValueError(
                f"x [B, T, H, D], positions [B or 1, T] and even dims up to D, not {tuple(x.shape)},"
                f" {tuple(positions.shape)} and {dims}"
            )
    launches = [x.shape[1] == 1 and uses_triton(x, backend) for x in parts]
    if all(launches) and not is_traced() and not may_require_grad(parts):
        from linbench.kernels.rotary import triton

        return tuple(triton.rotate_one(x, positions, dims, base) for x in parts)
    cos, sin = angles(positions, dims, at_least_float32(parts[0].dtype), base)
    if positions.shape[1] == 1 and len({(x.dtype, x.shape[3]) for x in parts}) == 1:
        # of one token the calls cost more than the work, so all parts are turned by the same ones
        together = rotate_first(torch.cat(tuple(parts), dim=2), cos, sin, backend=backend)
        return torch.split(together, [x.shape[2] for x in parts], dim=2)
    return tuple(rotate_first(x, cos, sin, backend=backend) for x in parts)
