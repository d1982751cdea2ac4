"""Items scattered through a haystack."""

from typing import NamedTuple

import torch
from torch import Tensor

from linbench.tasks.random import Stream

__all__ = ["Placement", "depth_tenths", "scatter"]


class Placement(NamedTuple):
    """Positions of items and hay in a text.

    starts: position of each item's first token, in order [B, items]. before: units of hay before each item
    [B, items]. hay: which token of the hay stands there, counted from the first unit [B, T]; tokens that do
    not fill a unit come first and have negative numbers. Under items the number means nothing.
    """

    starts: Tensor
    before: Tensor
    hay: Tensor

    def write_items(self, text: Tensor, items: Tensor) -> Tensor:
        """Return text [B, T] with items [B, items, width] written over it."""
        at = self.starts[:, :, None] + torch.arange(items.shape[2], device=items.device)
        return text.scatter(1, at.flatten(1), items.flatten(1))


def scatter(
    stream: Stream, *, items: int, width: int, hay: int, unit: int = 1, depth: float | None = None
) -> Placement:
    """Place items of `width` tokens between the units of a haystack.

    Args:
        stream: randomness.
        items: number of items.
        width: tokens of an item.
        hay: tokens of the haystack.
        unit: tokens of a unit of hay.
        depth: share of the units before all items; None: every order of items and units is equally likely.
    """
    units, rest = divmod(hay, unit)
    device = stream.key.device
    number = torch.arange(items, device=device)
    if depth is None:
        before = stream.permutation(units + items)(number).sort(dim=1).values - number
    else:
        before = torch.full((stream.key.shape[0], items), round(depth * units), device=device)
    starts = rest + unit * before + width * number
    text = torch.zeros(stream.key.shape[0], hay + items * width, dtype=torch.int64, device=device)
    begun = text.scatter(1, starts, 1).cumsum(dim=1)
    return Placement(starts, before, torch.arange(text.shape[1], device=device) - rest - width * begun)


def depth_tenths(before: Tensor, units: int) -> Tensor:
    """Return the depth of items with `before` of all units before them: 0 to 10, rounded."""
    return (20 * before + units) // (2 * max(units, 1))
