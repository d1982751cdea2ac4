"""Evaluates models on a split, by sums and weights that add up over batches."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, islice
from statistics import fmean
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.engine.batches import Streams, copy_batch, each, replica
from linbench.engine.cuda_graph import CudaGraph
from linbench.engine.stack import Stack
from linbench.experiments.cell import Cell
from linbench.experiments.precision import arithmetic
from linbench.tasks.base import IGNORE, Batch, Prediction, Split, Task

EXAMPLES = 256
"""Examples of a replica that are evaluated at once on a CPU."""

LOGITS = 1 << 28
"""Upper bound on the logits that are evaluated at once on a GPU: 1 GiB in float32."""

HIDDEN = 1 << 25
"""Upper bound on the numbers between two layers at once on a GPU: 128 MiB in float32.

A layer holds several times as many, and what a captured evaluation holds stays reserved for it.
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

    def __init__(
        self,
        cells: Sequence[Cell],
        split: Split,
        examples: int,
        *,
        slices: bool = True,
        note: str | None = None,
    ) -> None:
        """Draw the examples of all tests.

        Args:
            cells: a group; each cell is evaluated on examples of its own seed.
            split: "validation" or "test". Validation may leave out tests that are longer than training.
            examples: number of examples of each test, for each cell.
            slices: whether metrics are also taken by slice.
            note: the reason why nothing may be captured on a GPU, if there is one.
        """
        tasks = cells[0].validated_on if split == "validation" else cells[0].tested_on
        self.tests = [_Test(task, cells, split, examples, slices, note) for task in tasks]

    def __call__(self, stack: Stack) -> list[EvaluationResult]:
        """Return the result of each replica."""
        by_test = [test(stack) for test in self.tests]
        return [EvaluationResult(list(metrics)) for metrics in zip(*by_test, strict=True)]


class _Test:
    """A test with its examples, and the scorer of the stack that was evaluated last."""

    def __init__(
        self, task: Task, cells: Sequence[Cell], split: Split, examples: int, slices: bool, note: str | None
    ) -> None:
        self.task, self.slices, self.note = task, slices, note
        self.streams = Streams(task, cells)
        size = _batch_size(task, self.streams, cells[0].model.backbone.d_model)
        numbers = torch.arange(examples, device=self.streams.device)
        self.batches: list[Batch] = [self.streams.draw(index, split) for index in torch.split(numbers, size)]
        self.scorer: _Scorer | None = None

    def __call__(self, stack: Stack) -> list[TestMetrics]:
        if self.scorer is None or self.scorer.stack is not stack:
            self.scorer = _Scorer(stack, self)
        return self.scorer(self.batches)


class _Scorer:
    """Scores of a stack on a test. On a GPU a batch is captured once for each size, and replayed."""

    def __init__(self, stack: Stack, test: _Test) -> None:
        self.stack, self.test, self.streams = stack, test, test.streams
        self.totals: list[Scores] = [{} for _ in range(self.streams.replicas)]
        """Sums over the batches so far, for each replica; always in the same memory."""
        self.batches: dict[int, Batch] = {}
        """The batch that is scored, by its size; on a GPU always in the same memory."""
        self.steps: dict[int, CudaGraph] = {}

    @torch.no_grad()
    def __call__(self, batches: Iterable[Batch]) -> list[TestMetrics]:
        for x in _tensors(self.totals):
            x.zero_()
        self.stack.model.eval()
        for batch in batches:
            self._add(batch)
        self.stack.model.train()
        return collect_metrics(self.totals)

    def _add(self, batch: Batch) -> None:
        """Score a batch [S, N, ...], and add its scores to the totals."""
        size, device = batch.inputs.shape[1], self.streams.device
        if size not in self.steps:
            self.steps[size] = CudaGraph(partial(self._score, size), device, note=self.test.note)
        if device == "cpu":
            self.batches[size] = batch
        elif size not in self.batches:
            self.batches[size] = each(batch, torch.clone)
        else:
            copy_batch(batch, self.batches[size])
        self.steps[size]()

    def _score(self, size: int) -> None:
        batch = self.streams.spread(self.batches[size])
        with arithmetic(self.streams.protocol.precision, self.streams.device):
            outputs = self.stack(batch.inputs, batch.positions).float()
        for r, total in enumerate(self.totals):
            prediction = prediction_of(outputs[r], batch.targets[r])
            add_scores(total, self.test.task.score(replica(batch, r), prediction, slices=self.test.slices))


def add_scores(total: Scores, scores: Scores) -> None:
    """Add the scores of a batch to a total, in place."""
    for name, of_batch in scores.items():
        if name not in total:
            total[name] = (torch.zeros_like(of_batch[0]), torch.zeros_like(of_batch[1]))
        for sum_, x in zip(total[name], of_batch, strict=True):
            sum_ += x


def collect_metrics(totals: Sequence[Scores]) -> list[TestMetrics]:
    """Return the metrics of each total."""
    return [_test_metrics(total) for total in _read(totals)]


def prediction_of(outputs: Tensor, targets: Tensor) -> Prediction:
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
    sums = _tensors(totals)
    numbers = iter(torch.cat([x.flatten() for x in sums]).tolist())
    lists = iter([list(islice(numbers, x.numel())) for x in sums])
    return [{name: (next(lists), next(lists)) for name in total} for total in totals]


def _tensors(totals: Sequence[Scores]) -> list[Tensor]:
    """Return all sums and weights, in order."""
    pairs = chain.from_iterable(total.values() for total in totals)
    return [*chain.from_iterable(pairs)]


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
