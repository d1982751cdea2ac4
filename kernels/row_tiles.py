"""Tiles of rows [N, H, D] for Triton kernels: some rows of one head, D padded to a power of two.

What a head has of its own, such as a weight, is then loaded once for a tile. Programs for all heads of the
same rows lie side by side, as these do. Rows without heads have H = 1, which Triton compiles to nothing.
"""

from typing import NamedTuple

import triton
import triton.language as tl


class Launch(NamedTuple):
    """Sizes of a launch: tiles of `rows` rows, D padded to `padded`, and `tiles` of them to a program."""

    padded: int
    rows: int
    tiles: int
    warps: int


def forward_launch(width: int) -> Launch:
    """Return a launch with tiles of 2048 numbers and four warps, wider if a row is."""
    padded = _power_of_two(width)
    return Launch(padded, max(1, 2048 // padded), 1, max(4, min(16, padded // 1024)))


def backward_launch(rows: int, width: int, *, summed: bool) -> Launch:
    """Return a launch with tiles as forward.

    Args:
        summed: whether something is summed over all `rows`. Then a program takes several tiles, up to 64, but
            so that a thousand programs are left.
    """
    launch = forward_launch(width)
    tiles = -(-rows // launch.rows)
    return launch._replace(tiles=max(1, min(64, _power_of_two(tiles // 1024 + 1) // 2)) if summed else 1)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


@triton.jit
def program_index(program, programs, heads):
    """Return a program's replica, head, and number among the `programs` that these have.

    The grid is (replicas * programs * heads).
    """
    return program // heads // programs, program % heads, program // heads % programs


@triton.jit
def place(tile, replica, head, rows, heads, D, ROWS: tl.constexpr, BD: tl.constexpr):
    """Return offsets and mask [ROWS, BD] of a tile of a head of a replica in [replicas * rows, heads, D]."""
    row, column = tile * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, BD)[None, :]
    return ((replica * rows + row) * heads + head) * D + column, (row < rows) & (column < D)
