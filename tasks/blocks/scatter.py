"""What matters, scattered through what does not."""

from typing import NamedTuple

import torch
from torch import Tensor

from linbench.tasks.random import Stream

__all__ = ["Placement", "depth_tenths", "scatter"]


class Placement(NamedTuple):
    """Where everything stands in a text of items and hay.

    starts: [B, items], of each item's first token, in order. before: [B, items], how many units of hay stand
        before it.
    hay: [B, T], which token of the hay stands there, counted from the first unit: what does not fill a unit
        comes before all, with negative numbers.
    Under items it means nothing.
    """

    starts: Tensor
    before: Tensor
    hay: Tensor

    def write_items(self, text: Tensor, items: Tensor) -> Tensor:
        """text [B, T] with items [B, items, width] written over it."""
        at = self.starts[:, :, None] + torch.arange(items.shape[2], device=items.device)
        return text.scatter(1, at.flatten(1), items.flatten(1))


def scatter(
    stream: Stream, *, items: int, width: int, hay: int, unit: int = 1, depth: float | None = None
) -> Placement:
    """Items of `width` tokens each between the units, of `unit` tokens each, that `hay` tokens hold: all
    after the share `depth` of the units, or (None) anywhere, every order of items and units being as likely
    as any other."""
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
    """The depth of what has so many of all units before it: 0 to 10, rounded."""
    return (20 * before + units) // (2 * max(units, 1))
