"""Sizes of launches: tiles of channels and steps, by rule."""

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple


class Launch(NamedTuple):
    """Tile of a program: `groups` groups of channels, of head_dim padded to `padded`, over `steps` steps."""

    head_dim: int
    padded: int
    groups: int
    steps: int
    warps: int

    def programs(self, batch: int, length: int, channels: int) -> int:
        """Return how many programs cover [B, T, C]."""
        return batch * -(-length // self.steps) * -(-channels // (self.groups * self.head_dim))


def forward_launch(length: int, parts: Sequence[int], head_dim: int | None) -> Launch:
    """Return a launch with tiles of 2048 numbers, their rows 64 channels wide, 128 if there are many."""
    head_dim, padded, groups = _tile(parts, head_dim)
    steps = max(1, min(_power_of_two(length), 2048 // (groups * padded)))
    return Launch(head_dim, padded, groups, steps, max(1, min(4, steps * groups * padded // 256)))


def backward_launch(batch: int, length: int, parts: Sequence[int], head_dim: int | None) -> Launch:
    """Return a launch with rows as forward, four numbers a thread.

    Tiles have at most 64 steps, half or a quarter as many if programs would not fill a GPU.
    """
    head_dim, padded, groups = _tile(parts, head_dim)
    warps = max(1, min(8, groups * padded // 128))
    launch = Launch(head_dim, padded, groups, min(64, _power_of_two(length)), warps)
    while launch.steps > 16 and launch.programs(batch, length, sum(parts)) < 2048:
        launch = launch._replace(steps=launch.steps // 2)
    return launch


def splits(parts: Sequence[int], head_dim: int | None) -> bool:
    """Tell whether every part can be a tensor of its own.

    It can if it holds whole tiles, with rows that are worth a program.
    """
    head_dim, _, groups = _tile(parts, head_dim)
    width = groups * head_dim
    return len(parts) == 1 or (width >= _NARROWEST and not any(part % width for part in parts))


_NARROWEST = 16
"""Channels of the narrowest tile worth a program of its own: 32 bytes in bf16, one sector of memory."""


def _tile(parts: Sequence[int], head_dim: int | None) -> tuple[int, int, int]:
    """Return channels of a group, these padded, and groups of a tile.

    A tile lies within one part if that can be.
    """
    channels = sum(parts)
    width = 128 if channels >= 256 else 64
    common = gcd(*parts) if len(parts) > 1 else _power_of_two(channels)
    if head_dim is None:
        head_dim = min(width, common & -common)
    padded = _power_of_two(head_dim)
    most = max(1, min(width // padded, _power_of_two(-(-channels // head_dim))))
    whole = common // head_dim
    return head_dim, padded, min(most, whole & -whole) if len(parts) > 1 and whole else most


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
