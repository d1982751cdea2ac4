"""Sizes of launches: tiles of tokens and channels, by rule."""

from typing import NamedTuple


class Launch(NamedTuple):
    """Tiles of `rows` rows and `block` channels; each row has `steps` tokens."""

    rows: int
    steps: int
    block: int
    warps: int

    def chunks(self, length: int) -> int:
        """Return how many programs take the tokens of a sequence."""
        return -(-length // (self.rows * self.steps))

    def programs(self, batch: int, length: int, width: int) -> int:
        """Return how many programs cover [batch, length, width]."""
        return batch * self.chunks(length) * -(-width // self.block)


def forward_launch(length: int, width: int) -> Launch:
    """Return a launch with tiles of 1024 numbers, eight a thread."""
    block = _block(width)
    rows = min(_power_of_two(length), 1024 // block)
    return Launch(rows, 1, block, max(1, rows * block // 256))


def backward_launch(batch: int, length: int, width: int) -> Launch:
    """Return a launch with tiles of 512 numbers, four a thread, since each stream has a sum of its own.

    A row has 16 steps, fewer if that leaves less than a thousand programs.
    """
    block = _block(width)
    rows = min(_power_of_two(length), 512 // block)
    launch = Launch(rows, min(16, _power_of_two(-(-length // rows))), block, max(1, rows * block // 128))
    while launch.steps > 4 and launch.programs(batch, length, width) < 1024:
        launch = launch._replace(steps=launch.steps // 2)
    return launch


def _block(width: int) -> int:
    """Return the channels of a block, at most 256.

    Blocks cover the width exactly if they can, and are not narrow.
    """
    exact = min(256, width & -width)
    return exact if exact >= 64 else min(128, _power_of_two(width))


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
