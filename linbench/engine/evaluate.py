"""Evaluates models on a split, by sums and weights that add up over batches."""

from collections.abc import Sequence
from itertools import chain, islice
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
"""Examples of a replica that are evaluated at once on a CPU."""

LOGITS = 1 << 28
"""Upper bound on the logits that are evaluated at once on a GPU: 1 GiB in float32."""

HIDDEN = 1 << 26
"""Upper bound on the numbers between two layers at once on a GPU: 256 MiB in float32.

A layer holds several times as many for a while.
"""

Scores = dict[str, tuple[Tensor, Tensor]]
"""Sums and weights by the name of a metric, as `Task.score` returns them."""

_ReadScores = dict[str, tuple[list[float], list[float]]]
"""Scores as numbers; a single one is a list of one."""


class TestMetrics(NamedTuple):
    """The metrics of one test.

    slices: for every slice its values that occur (`at`), with sums and weights of every metric for each.
    """

    metrics: dict[str, float]
    slices: dict[str, dict[str, Any]]


class EvaluationResult(NamedTuple):
    """The metrics of all tests of a model."""

    tests: list[TestMetrics]

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of every metric over the tests that have it."""
        values: dict[str, list[float]] = {}
        for test in self.tests:
            for name, value in test.metrics.items():
                values.setdefault(name, []).append(value)
        return {name: fmean(of_tests) for name, of_tests in values.items()}


class Evaluation:
    """A split of every test of a group of cells, drawn once and evaluated again and again."""

    def __init__(self, cells: Sequence[Cell], split: Split, examples: int, *, slices: bool = True) -> None:
        """Draw the examples of all tests.

        Args:
            cells: a group; each cell is evaluated on examples of its own seed.
            split: "validation" or "test".
            examples: number of examples of each test, for each cell.
            slices: whether metrics are also taken by slice.
        """
        self.tests = [_Test(task, cells, split, examples, slices) for task in cells[0].tested_on]

    def __call__(self, stack: Stack) -> list[EvaluationResult]:
        """Return the result of each replica."""
        by_test = [test(stack) for test in self.tests]
        return [EvaluationResult(list(metrics)) for metrics in zip(*by_test, strict=True)]


class _Test:
    def __init__(self, task: Task, cells: Sequence[Cell], split: Split, examples: int, slices: bool) -> None:
        self.task, self.slices = task, slices
        self.streams = Streams(task, cells)
        size = _batch_size(task, self.streams, cells[0].model.backbone.d_model)
        numbers = torch.arange(examples, device=self.streams.device)
        self.batches: list[Batch] = [self.streams.draw(index, split) for index in torch.split(numbers, size)]

    @torch.no_grad()
    def __call__(self, stack: Stack) -> list[TestMetrics]:
        stack.model.eval()
        totals: list[Scores] = [{} for _ in range(self.streams.replicas)]
        for shared in self.batches:
            batch = self.streams.spread(shared)
            with arithmetic(self.streams.protocol.precision, self.streams.device):
                outputs = stack(batch.inputs, batch.positions).float()
            for r, total in enumerate(totals):
                prediction = _prediction(outputs[r], batch.targets[r])
                add_scores(total, self.task.score(replica(batch, r), prediction, slices=self.slices))
        stack.model.train()
        return collect_metrics(totals)


def add_scores(total: Scores, scores: Scores) -> None:
    """Add the scores of a batch to a total."""
    for name, (value, weight) in scores.items():
        if name in total:
            total[name] = (total[name][0] + value, total[name][1] + weight)
        else:
            total[name] = (value, weight)


def collect_metrics(totals: Sequence[Scores]) -> list[TestMetrics]:
    """Return the metrics of each total."""
    return [_test_metrics(total) for total in _read(totals)]


def _prediction(outputs: Tensor, targets: Tensor) -> Prediction:
    """Return the prediction and its loss, from logits or vectors [B, N, ...]."""
    if targets.is_floating_point():
        return Prediction(outputs, (outputs - targets).square().mean(dim=-1))
    losses = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none")
    return Prediction(outputs.argmax(dim=-1), losses.view_as(targets), outputs)


def _batch_size(task: Task, streams: Streams, width: int) -> int:
    """Return how many examples of a replica are evaluated at once: on a GPU as many as fit.

    A task with a score of its own gets a multiple of `EXAMPLES`, as its score may depend on the batch.
    """
    if streams.device == "cpu":
        return EXAMPLES
    unit = 1 if type(task).score is Task.score else EXAMPLES
    logits = task.answers * (task.io.vocab_out or task.io.d_out or 1)
    hidden = task.seq_len * width
    most = min(LOGITS // (streams.replicas * logits), HIDDEN // (streams.replicas * hidden))
    return max(1, most // unit) * unit


def _read(totals: Sequence[Scores]) -> list[_ReadScores]:
    """Read all scores from the device at once, so that it is waited for only once."""
    pairs = chain.from_iterable(total.values() for total in totals)
    sums = [*chain.from_iterable(pairs)]
    numbers = iter(torch.cat([x.flatten() for x in sums]).tolist())
    lists = iter([list(islice(numbers, x.numel())) for x in sums])
    return [{name: (next(lists), next(lists)) for name in total} for total in totals]


def _test_metrics(totals: _ReadScores) -> TestMetrics:
    """Return metrics with their slices; a metric of weight zero is left out."""
    metrics: dict[str, float] = {}
    slices: dict[str, dict[str, Any]] = {}
    for name, (sums, weights) in totals.items():
        metric, _, slice_name = name.partition("/")
        if slice_name:
            if slice_name not in slices:
                _, counts = totals[f"accuracy/{slice_name}"]
                slices[slice_name] = {"at": [i for i, count in enumerate(counts) if count]}
            slice_ = slices[slice_name]
            slice_[metric] = {
                "sum": [_whole_if_possible(sums[i]) for i in slice_["at"]],
                "weight": [_whole_if_possible(weights[i]) for i in slice_["at"]],
            }
        elif weights[0]:
            metrics[name] = sums[0] / weights[0]
    return TestMetrics(metrics, slices)


def _whole_if_possible(x: float) -> float:
    return int(x) if x.is_integer() else x
