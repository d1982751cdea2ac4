"""Judging models on a split: sums and counts that add up over batches."""

from collections.abc import Sequence
from itertools import islice
from statistics import fmean
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.engine.batches import Streams, replica
from linbench.engine.stack import Stack
from linbench.experiments.cell import Cell
from linbench.experiments.precision import arithmetic
from linbench.tasks.base import IGNORE, Batch, Prediction, Split, Task

EXAMPLES = 256
"""Of a replica at a time on a CPU."""

LOGITS = 1 << 28
"""At a time on a GPU, at most."""

HIDDEN = 1 << 26
"""Numbers between two layers, likewise; a layer holds several times as many for a while."""


Scores = dict[str, tuple[Tensor, Tensor]]
"""As `Task.score` has them: sums and weights."""


class Marks(NamedTuple):
    """Of one test: metrics, and for every slice the integers that occur (`at`) with the sums and weights of
    every metric there."""

    metrics: dict[str, float]
    slices: dict[str, dict[str, Any]]


class Judgement(NamedTuple):
    """Of all tests: what each found, and the mean of every metric over them."""

    tests: list[Marks]

    @property
    def metrics(self) -> dict[str, float]:
        """Each test counts as much as any other that has the metric."""
        names = dict.fromkeys(name for marks in self.tests for name in marks.metrics)
        return {
            name: fmean(marks.metrics[name] for marks in self.tests if name in marks.metrics)
            for name in names
        }


class Exam:
    """A split of every test of a group of cells, drawn once."""

    def __init__(self, cells: Sequence[Cell], split: Split, examples: int, *, slices: bool = True) -> None:
        """As many examples of each test for each cell, of its own seed; judged by slices too, or as a whole
        alone."""
        self.tests = [_Test(task, cells, split, examples, slices) for task in cells[0].tested_on]

    def __call__(self, stack: Stack) -> list[Judgement]:
        """What each replica is worth."""
        return [Judgement(list(marks)) for marks in zip(*(test(stack) for test in self.tests), strict=True)]


class _Test:
    """One of them."""

    def __init__(self, task: Task, cells: Sequence[Cell], split: Split, examples: int, slices: bool) -> None:
        self.task, self.slices = task, slices
        self.streams = Streams(task, cells)
        places = torch.split(
            torch.arange(examples, device=self.streams.device),
            _at_once(task, self.streams, cells[0].model.backbone.d_model),
        )
        self.batches: list[Batch] = [self.streams.draw(index, split) for index in places]

    @torch.no_grad()
    def __call__(self, stack: Stack) -> list[Marks]:
        """Of each replica."""
        stack.model.eval()
        totals: list[Scores] = [{} for _ in range(self.streams.replicas)]
        for drawn in self.batches:
            batch = self.streams.spread(drawn)
            with arithmetic(self.streams.protocol.precision, self.streams.device):
                found = stack(batch.inputs, batch.positions).float()
            for r, total in enumerate(totals):
                add(
                    total,
                    self.task.score(
                        replica(batch, r), _prediction(found[r], batch.targets[r]), slices=self.slices
                    ),
                )
        stack.model.train()
        return marks(totals)


def add(total: Scores, scores: Scores) -> None:
    """Those of another batch to a total."""
    for name, (value, weight) in scores.items():
        total[name] = (total[name][0] + value, total[name][1] + weight) if name in total else (value, weight)


def marks(totals: Sequence[Scores]) -> list[Marks]:
    """Of each total."""
    return [_marks(total) for total in _fetched(totals)]


def _prediction(found: Tensor, targets: Tensor) -> Prediction:
    """Logits or vectors [B, N, ...]."""
    if targets.is_floating_point():
        return Prediction(found, (found - targets).square().mean(dim=-1))
    loss = F.cross_entropy(
        found.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none"
    ).view_as(targets)
    return Prediction(found.argmax(dim=-1), loss, found)


def _at_once(task: Task, streams: Streams, width: int) -> int:
    """Examples of a replica. On a GPU as many as fit, and a multiple of `EXAMPLES` for a task that has a
    score of its own, which may be of whole batches."""
    if streams.device == "cpu":
        return EXAMPLES
    unit = 1 if type(task).score is Task.score else EXAMPLES
    logits, hidden = task.answers * (task.io.vocab_out or task.io.d_out or 1), task.seq_len * width
    most = min(LOGITS // (streams.replicas * logits), HIDDEN // (streams.replicas * hidden))
    return max(1, most // unit) * unit


def _fetched(totals: Sequence[Scores]) -> list[dict[str, tuple[list[float], list[float]]]]:
    """All numbers on the host, a single number as a list of one: the device is waited for once."""
    sums = [x for total in totals for pair in total.values() for x in pair]
    numbers = iter(torch.cat([x.flatten() for x in sums]).tolist())
    lists = iter([list(islice(numbers, x.numel())) for x in sums])
    return [{name: (next(lists), next(lists)) for name in total} for total in totals]


def _marks(totals: dict[str, tuple[list[float], list[float]]]) -> Marks:
    """What was never weighed is no metric."""
    metrics: dict[str, float] = {}
    slices: dict[str, dict[str, Any]] = {}
    for name, (value, weight) in totals.items():
        metric, _, slice_ = name.partition("/")
        if slice_:
            found = slices.setdefault(
                slice_, {"at": [i for i, there in enumerate(totals[f"accuracy/{slice_}"][1]) if there]}
            )
            found[metric] = {
                kind: [_number(sums[i]) for i in found["at"]]
                for kind, sums in (("sum", value), ("weight", weight))
            }
        elif weight[0]:
            metrics[name] = value[0] / weight[0]
    return Marks(metrics, slices)


def _number(x: float) -> float:
    """An integer where it is one."""
    return int(x) if x.is_integer() else x
