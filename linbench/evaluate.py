"""Judging models on a split: sums and counts that add up over batches."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.batches import Streams, replica
from linbench.cell import Cell
from linbench.precision import arithmetic
from linbench.stack import Stack
from linbench.tasks.base import IGNORE, Batch, Prediction, Split, Task

EXAMPLES = 256
"""Of a replica at a time, at least."""

LOGITS = 1 << 28
"""At a time on a GPU, at most, where that is more examples."""


class Marks(NamedTuple):
    """Of one test: metrics, and for every slice the integers that occur (`at`) with the sums and weights of every metric there."""

    metrics: dict[str, float]
    slices: dict[str, dict[str, Any]]


class Judgement(NamedTuple):
    """Of all tests: what each found, and the mean of every metric over them."""

    tests: list[Marks]

    @property
    def metrics(self) -> dict[str, float]:
        """Each test counts as much as any other that has the metric."""
        names = dict.fromkeys(name for marks in self.tests for name in marks.metrics)
        return {name: fmean(marks.metrics[name] for marks in self.tests if name in marks.metrics) for name in names}


class Exam:
    """A split of every test of a group of cells, drawn once."""

    def __init__(self, cells: Sequence[Cell], split: Split, examples: int) -> None:
        """As many examples of each test for each cell, of its own seed."""
        self.tests = [_Test(task, cells, split, examples) for task in cells[0].tested_on]

    def __call__(self, stack: Stack) -> list[Judgement]:
        """What each replica is worth."""
        return [Judgement(list(marks)) for marks in zip(*(test(stack) for test in self.tests), strict=True)]


class _Test:
    """One of them."""

    def __init__(self, task: Task, cells: Sequence[Cell], split: Split, examples: int) -> None:
        self.task = task
        self.streams = Streams(task, cells)
        places = torch.split(torch.arange(examples, device=self.streams.device), _at_once(task, self.streams))
        self.batches: list[Batch] = [self.streams.draw(index, split) for index in places]

    @torch.no_grad()
    def __call__(self, stack: Stack) -> list[Marks]:
        """Of each replica."""
        stack.model.eval()
        totals: list[dict[str, tuple[Tensor, Tensor]]] = [{} for _ in range(self.streams.replicas)]
        for drawn in self.batches:
            batch = self.streams.spread(drawn)
            with arithmetic(self.streams.protocol.precision, self.streams.device):
                found = stack(batch.inputs, batch.positions).float()
            for r, total in enumerate(totals):
                for name, (value, count) in self.task.score(replica(batch, r), _prediction(found[r], batch.targets[r])).items():
                    old = total.get(name, (0, 0))
                    total[name] = (old[0] + value, old[1] + count)
        stack.model.train()
        return [_marks(total) for total in totals]


def _prediction(found: Tensor, targets: Tensor) -> Prediction:
    """Logits or vectors [B, N, ...]."""
    if targets.is_floating_point():
        return Prediction(found, (found - targets).square().mean(dim=-1))
    loss = F.cross_entropy(found.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none").view_as(targets)
    return Prediction(found.argmax(dim=-1), loss, found)


def _at_once(task: Task, streams: Streams) -> int:
    """Examples of a replica: a multiple of so many, for tasks that judge batches."""
    if streams.device == "cpu":
        return EXAMPLES
    each = streams.replicas * task.answers * (task.io.vocab_out or task.io.d_out or 1)
    return max(1, LOGITS // (each * EXAMPLES)) * EXAMPLES


def _marks(totals: dict[str, tuple[Tensor, Tensor]]) -> Marks:
    """What was never weighed is no metric."""
    metrics = {name: (value / weight).item() for name, (value, weight) in totals.items() if value.dim() == 0 and weight != 0}
    slices: dict[str, dict[str, Any]] = {}
    for name, (value, weight) in totals.items():
        if value.dim() == 1:
            metric, _, slice_ = name.partition("/")
            found = slices.setdefault(slice_, {"at": totals[f"accuracy/{slice_}"][1].nonzero().flatten().tolist()})
            found[metric] = {"sum": _numbers(value[found["at"]]), "weight": _numbers(weight[found["at"]])}
    return Marks(metrics, slices)


def _numbers(values: Tensor) -> list[float]:
    return [int(x) if x.is_integer() else x for x in values.tolist()]
