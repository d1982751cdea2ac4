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
    """Of one test: metrics, and for every slice the integers that occur with how many answers were right and how many were due."""

    metrics: dict[str, float]
    slices: dict[str, dict[str, list[int]]]


class Judgement(NamedTuple):
    """Of all tests: what each found, and the mean of every metric over them."""

    tests: list[Marks]

    @property
    def metrics(self) -> dict[str, float]:
        """Each test counts as much as any other."""
        return {name: fmean(marks.metrics[name] for marks in self.tests) for name in self.tests[0].metrics}


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
                logits = stack(batch.inputs, batch.positions).float()
            nll = F.cross_entropy(logits.flatten(0, -2), batch.targets.flatten(), ignore_index=IGNORE, reduction="none").view_as(batch.targets)
            answers = logits.argmax(dim=-1)
            for r, total in enumerate(totals):
                for name, (value, count) in self.task.score(replica(batch, r), Prediction(answers[r], nll[r], logits[r])).items():
                    old = total.get(name, (0, 0))
                    total[name] = (old[0] + value, old[1] + count)
        stack.model.train()
        return [_marks(total) for total in totals]


def _at_once(task: Task, streams: Streams) -> int:
    """Examples of a replica."""
    if streams.device == "cpu":
        return EXAMPLES
    return max(EXAMPLES, LOGITS // (streams.replicas * task.answers * task.io.vocab_out))


def _marks(totals: dict[str, tuple[Tensor, Tensor]]) -> Marks:
    metrics = {name: (value / count).item() for name, (value, count) in totals.items() if value.dim() == 0}
    return Marks(metrics, {name.partition("/")[2]: _slice(*both) for name, both in totals.items() if both[0].dim() == 1})


def _slice(right: Tensor, counted: Tensor) -> dict[str, Any]:
    occurring = counted.nonzero().flatten()
    return {name: values.long().tolist() for name, values in (("at", occurring), ("right", right[occurring]), ("counted", counted[occurring]))}
