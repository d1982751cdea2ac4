"""The examples that a group of cells trains and is judged on: one batch for every replica."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from linbench.engine.cuda_graph import Captured
from linbench.experiments.cell import Cell
from linbench.tasks.base import Batch, Split, Task
from linbench.tasks.random import Stream

AT_ONCE = {"cpu": 1 << 19, "cuda": 1 << 25}
"""Tokens, and answers, drawn in one go, by kind of device: a draw of a few costs much the same as one of so
many. A vector is as many as it has dimensions."""


class Streams:
    """The examples of a task for every cell of a group, by its seed. Cells of one seed share what is
    drawn."""

    def __init__(self, task: Task, cells: Sequence[Cell]) -> None:
        self.task, self.protocol, self.device = task, cells[0].protocol, cells[0].device
        seeds = sorted({cell.seed for cell in cells})
        self.count, self.replicas = len(seeds), len(cells)
        self.seeds = torch.tensor(seeds, device=self.device)
        self.which = torch.tensor([seeds.index(cell.seed) for cell in cells], device=self.device)

    def draw(self, index: Tensor, split: Split) -> Batch:
        """Examples number `index` [N] of every seed's own stream: everything [S, N, ...]."""
        return self._drawn(self._every(index), split)

    def trained_on(self, place: Tensor, examples: int | None, lowest: int = 0) -> Batch:
        """What comes at `place` [N] in training: examples of these numbers, or of a fixed set of `examples`
        round and round, in its order or, if the protocol shuffles, in another for every epoch. `lowest`: the
        number of the first example of all."""
        every = self._every(place)
        if examples is not None:
            epoch, every = every // examples, every % examples
            if self.protocol.shuffle:
                every = Stream.of(epoch, seed=self._seeds(every), split="order of training").permutation(
                    examples
                )(every[:, None])[:, 0]
        return self._drawn(lowest + every, "train")

    def spread(self, drawn: Batch) -> Batch:
        """To every cell what is drawn for its seed: [S, N, ...] -> [R, N, ...]."""
        return each(
            drawn, lambda x: x.expand(self.replicas, *x.shape[1:]) if self.count == 1 else x[self.which]
        )

    def _every(self, index: Tensor) -> Tensor:
        return index.repeat(self.count)

    def _seeds(self, every: Tensor) -> Tensor:
        """Of each of `every`, which has as many of each seed."""
        return self.seeds.repeat_interleave(len(every) // self.count, output_size=len(every))

    def _drawn(self, every: Tensor, split: Split) -> Batch:
        return each(
            self.task.sample(every, seed=self._seeds(every), split=split),
            lambda x: x.view(self.count, -1, *x.shape[1:]),
        )


class Feed:
    """What a group trains on: batch after batch, always in the same place on the device, so that a captured
    step finds it there."""

    def __init__(
        self,
        streams: Streams,
        *,
        examples: int | None,
        first: int,
        last: int,
        epoch: int | None = None,
        lowest: int = 0,
    ) -> None:
        """Batches number `first` to `last` - 1 of the training stream, or of a fixed set of `examples`, which
        is gone through round and round however batches fall; or, if an `epoch` has so many batches, from its
        first example on in every epoch. `lowest`: the number of that."""
        self.streams, self.size = streams, streams.protocol.batch_size
        self.examples, self.epoch, self.lowest = examples, epoch, lowest
        self.ahead = max(
            1, min(at_once(streams.task, streams.device) // (self.size * streams.count), last - first)
        )
        self.place = torch.tensor(first, device=streams.device)
        """The next batch."""
        self.drawn_from = self.place.clone()
        self.drawn: Batch | None = None
        self.left = 0
        self.fill = Captured(self._fill, streams.device)

    def ready(self) -> None:
        """See to it that the next batch is drawn. Before every `batch`, but not captured with it."""
        if not self.left:
            self.fill()
            self.left = self.ahead
        self.left -= 1

    def batch(self) -> Batch:
        """The next batch: everything [R, B, ...], but for slices and facts, of which there are none."""
        assert self.drawn is not None
        rows = (self.place - self.drawn_from) * self.size + torch.arange(self.size, device=self.place.device)
        self.place += 1
        return self.streams.spread(each(self.drawn, lambda x: x.index_select(1, rows)))

    def _fill(self) -> None:
        self.drawn_from.copy_(self.place)
        places = self.place * self.size + torch.arange(self.ahead * self.size, device=self.place.device)
        if self.epoch is not None and self.examples is not None:
            epoch, places = places // (self.epoch * self.size), places % (self.epoch * self.size)
            places = epoch * self.examples + places % self.examples
        drawn = self.streams.trained_on(places, self.examples, self.lowest)._replace(slices={}, facts={})
        if self.drawn is None:
            self.drawn = each(drawn, lambda x: x.clone(memory_format=torch.contiguous_format))
        else:
            for old, new in zip(self.drawn[:3], drawn[:3], strict=True):
                old.copy_(new)


def at_once(task: Task, device: str) -> int:
    """Examples drawn in one go."""
    numbers = task.seq_len * (task.io.d_in or 1) + task.answers * (task.io.d_out or 1)
    return max(1, AT_ONCE[torch.device(device).type] // numbers)


def replica(batch: Batch, r: int) -> Batch:
    """What one replica sees: everything [B, ...]."""
    return each(batch, lambda x: x[r])


def each(batch: Batch, function: Callable[[Tensor], Tensor]) -> Batch:
    """The batch with every tensor changed."""
    slices, facts = (
        {name: function(x) for name, x in named.items()} for named in (batch.slices, batch.facts)
    )
    return Batch(function(batch.inputs), function(batch.positions), function(batch.targets), slices, facts)
