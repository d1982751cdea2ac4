"""The examples that a group of cells trains and is judged on: one batch for every replica."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from linbench.cell import Cell
from linbench.protocol import Protocol
from linbench.tasks.base import Batch, Split
from linbench.tasks.random import Stream

DRAWN_AT_ONCE = 512
"""Examples drawn in one go where batches are smaller, since a draw costs much the same for all."""


def draw(cells: Sequence[Cell], index: Tensor, split: Split, *, ordered: bool = False) -> Batch:
    """Examples number `index` [N] of every cell's own stream: everything [R, N, ...]. Cells of one seed share one draw.

    ordered: `index` counts what the protocol trains on: of a fixed set round and round, in its order.
    """
    seeds = sorted({cell.seed for cell in cells})
    each = torch.tensor(seeds, device=index.device).repeat_interleave(len(index))
    every = index.repeat(len(seeds))
    if ordered:
        every = trained_on(every, each, cells[0].protocol)
    drawn = cells[0].task.sample(every, seed=each if len(seeds) > 1 else seeds[0], split=split)
    which = torch.tensor([seeds.index(cell.seed) for cell in cells], device=index.device)

    def spread(x: Tensor) -> Tensor:
        x = x.view(len(seeds), len(index), *x.shape[1:])
        return x.expand(len(cells), *x.shape[1:]) if len(seeds) == 1 else x[which]

    return _each(drawn, spread)


def trained_on(index: Tensor, seed: Tensor, protocol: Protocol) -> Tensor:
    """Which example of the training stream comes at place `index` [N], for `seed` [N]: the same number, or with a fixed set of examples one of
    these: the set round and round, with `shuffle` in an order of its own in every epoch."""
    if protocol.examples is None:
        return index
    epoch, place = index // protocol.examples, index % protocol.examples
    if not protocol.shuffle:
        return place
    return Stream.of(epoch, seed=seed, split="order of training").permutation(protocol.examples)(place[:, None])[:, 0]


def training_batches(cells: Sequence[Cell], *, first: int = 0) -> Iterator[Batch]:
    """What every cell trains on from its example number `first` on, a batch at a time: everything [R, B, ...]."""
    size, device = cells[0].protocol.batch_size, cells[0].device
    at_once = max(1, DRAWN_AT_ONCE // (size * len(cells)))
    while True:
        drawn = draw(cells, torch.arange(first, first + at_once * size, device=device), "train", ordered=True)
        for start in range(0, at_once * size, size):
            yield rows(drawn, slice(start, start + size))
        first += at_once * size


def rows(batch: Batch, these: slice) -> Batch:
    """Some of the examples of every replica."""
    return _each(batch, lambda x: x[:, these])


def replica(batch: Batch, r: int) -> Batch:
    """What one replica sees: everything [B, ...]."""
    return _each(batch, lambda x: x[r])


def _each(batch: Batch, function: Callable[[Tensor], Tensor]) -> Batch:
    slices = {name: function(x) for name, x in batch.slices.items()}
    return Batch(function(batch.inputs), function(batch.positions), function(batch.targets), slices)
