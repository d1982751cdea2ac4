"""The examples that a group of cells is trained and evaluated on: one batch for every replica."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from linbench.engine.cuda_graph import CudaGraph
from linbench.experiments.cell import Cell
from linbench.tasks.base import Batch, Split, Task
from linbench.tasks.random import Stream

AT_ONCE = {"cpu": 1 << 19, "cuda": 1 << 25}
"""Numbers drawn at once, by kind of device: a draw of fewer costs much the same.

Tokens and answers count one each, vectors as many as they have dimensions.
"""


class Streams:
    """The examples of a task for every cell of a group, by the cell's seed.

    Cells with equal seeds share what is drawn. Shapes: S seeds, R replicas (one for each cell), N examples.
    """

    def __init__(self, task: Task, cells: Sequence[Cell]) -> None:
        self.task, self.protocol, self.device = task, cells[0].protocol, cells[0].device
        seeds = sorted({cell.seed for cell in cells})
        self.count, self.replicas = len(seeds), len(cells)
        self.seeds = torch.tensor(seeds, device=self.device)
        self.seed_of_replica = torch.tensor([seeds.index(cell.seed) for cell in cells], device=self.device)

    def draw(self, index: Tensor, split: Split) -> Batch:
        """Return examples of every seed's stream, each tensor [S, N, ...].

        Args:
            index: numbers of examples, [N].
            split: the stream to draw from.
        """
        return self._sample(self._repeat(index), split)

    def trained_on(self, place: Tensor, examples: int | None, lowest: int = 0, stride: int = 0) -> Batch:
        """Return the examples at places [N] of the training stream, each tensor [S, N, ...].

        Args:
            place: places in the stream, from 0.
            examples: size of a fixed set that is gone through again and again, in its order or, if the
                protocol shuffles, in another order for every epoch; None if every example is new.
            lowest: number of the first example.
            stride: what is added to it with every epoch; 0 if all epochs have the same examples.
        """
        repeated = self._repeat(place)
        if examples is not None:
            epoch, repeated = repeated // examples, repeated % examples
            if self.protocol.shuffle:
                stream = Stream.of(epoch, seed=self._seeds(repeated), split="order of training")
                repeated = stream.permutation(examples)(repeated[:, None])[:, 0]
            repeated = repeated + epoch * stride
        return self._sample(lowest + repeated, "train")

    def spread(self, batch: Batch) -> Batch:
        """Return for every cell what was drawn for its seed: [S, N, ...] -> [R, N, ...]."""
        if self.count == 1:
            return each(batch, lambda x: x.expand(self.replicas, *x.shape[1:]))
        return each(batch, lambda x: x[self.seed_of_replica])

    def _repeat(self, index: Tensor) -> Tensor:
        return index.repeat(self.count)

    def _seeds(self, repeated: Tensor) -> Tensor:
        """Return the seed of each number in `repeated`, which holds equally many of each seed in turn."""
        return self.seeds.repeat_interleave(len(repeated) // self.count, output_size=len(repeated))

    def _sample(self, repeated: Tensor, split: Split) -> Batch:
        batch = self.task.sample(repeated, seed=self._seeds(repeated), split=split)
        return each(batch, lambda x: x.view(self.count, -1, *x.shape[1:]))


class BatchFeed:
    """The training batches of a group, drawn many at once.

    They always lie in the same memory on the device, so that a captured step finds them there.
    """

    def __init__(
        self,
        streams: Streams,
        *,
        examples: int | None,
        first: int,
        last: int,
        epoch: int | None = None,
        lowest: int = 0,
        stride: int = 0,
    ) -> None:
        """Prepare the batches from number `first` to `last` - 1.

        Args:
            streams: the group's examples.
            examples: size of a fixed set that is gone through again and again; None if every example is new.
            first, last: numbers of batches.
            epoch: batches of an epoch, which begins with the first example of the set; None if a batch may
                hold examples of two epochs.
            lowest: number of the first example.
            stride: what is added to it with every epoch; 0 if all epochs have the same examples.
        """
        self.streams, self.size = streams, streams.protocol.batch_size
        self.examples, self.epoch, self.lowest, self.stride = examples, epoch, lowest, stride
        fitting = examples_per_draw(streams.task, streams.device) // (self.size * streams.count)
        self.prefetch = max(1, min(fitting, last - first))
        """Batches that are drawn at once."""
        self.place = torch.tensor(first, device=streams.device)
        """Number of the next batch."""
        self.first_drawn = self.place.clone()
        """Number of the first batch that was drawn last."""
        self.drawn: Batch | None = None
        self.remaining = 0
        """Batches that are drawn and not used."""
        self.fill = CudaGraph(self._fill, streams.device)

    def refill(self) -> None:
        """Draw the next batches if none are left.

        This must be called before every `batch`, and must not be captured with it.
        """
        if not self.remaining:
            self.fill()
            self.remaining = self.prefetch
        self.remaining -= 1

    def batch(self) -> Batch:
        """Return the next batch, each tensor [R, B, ...], without slices and facts."""
        assert self.drawn is not None
        rows = (self.place - self.first_drawn) * self.size + torch.arange(self.size, device=self.place.device)
        self.place += 1
        return self.streams.spread(each(self.drawn, lambda x: x[:, rows]))

    def _fill(self) -> None:
        self.first_drawn.copy_(self.place)
        places = self.place * self.size + torch.arange(self.prefetch * self.size, device=self.place.device)
        if self.epoch is not None and self.examples is not None:
            epoch, places = places // (self.epoch * self.size), places % (self.epoch * self.size)
            places = epoch * self.examples + places % self.examples
        batch = self.streams.trained_on(places, self.examples, self.lowest, self.stride)
        batch = batch._replace(slices={}, facts={})
        if self.drawn is None:
            self.drawn = each(batch, lambda x: x.clone(memory_format=torch.contiguous_format))
        else:
            copy_batch(batch, self.drawn)


def examples_per_draw(task: Task, device: str) -> int:
    """Return how many examples of a task are drawn at once."""
    numbers = task.seq_len * (task.io.d_in or 1) + task.answers * (task.io.d_out or 1)
    return max(1, AT_ONCE[torch.device(device).type] // numbers)


def replica(batch: Batch, r: int) -> Batch:
    """Return the batch of one replica, each tensor [B, ...]."""
    return each(batch, lambda x: x[r])


def each(batch: Batch, function: Callable[[Tensor], Tensor]) -> Batch:
    """Return the batch with a function applied to every tensor."""
    slices = {name: function(x) for name, x in batch.slices.items()}
    facts = {name: function(x) for name, x in batch.facts.items()}
    return Batch(function(batch.inputs), function(batch.positions), function(batch.targets), slices, facts)


def copy_batch(batch: Batch, into: Batch) -> None:
    """Copy every tensor of a batch into those of another with the same shapes."""
    for old, new in zip(_tensors(into), _tensors(batch), strict=True):
        old.copy_(new)


def _tensors(batch: Batch) -> list[Tensor]:
    return [*batch[:3], *batch.slices.values(), *batch.facts.values()]
