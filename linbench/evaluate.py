"""Judging models on a split: sums and counts that add up over batches."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.batches import Streams, replica
from linbench.cell import Cell
from linbench.precision import arithmetic
from linbench.stack import Stack
from linbench.tasks.base import IGNORE, Batch, Prediction, Split

EXAMPLES = 256
"""Of a replica at a time, at least."""

LOGITS = 1 << 28
"""At a time on a GPU, at most, where that is more examples."""

Judgement = tuple[dict[str, float], dict[str, dict[str, list[int]]]]
"""Metrics, and for every slice the integers that occur with how many answers were right and how many were due."""


class Exam:
    """A split for a group of cells, drawn once."""

    def __init__(self, cells: Sequence[Cell], split: Split, examples: int) -> None:
        """As many examples for each, of its own seed."""
        self.cells = cells
        self.streams = Streams(cells[0].task, cells)
        size = _at_once(cells)
        places = torch.split(torch.arange(examples, device=cells[0].device), size)
        self.batches: list[Batch] = [self.streams.draw(index, split) for index in places]

    @torch.no_grad()
    def __call__(self, stack: Stack) -> list[Judgement]:
        """What each replica is worth."""
        stack.model.eval()
        totals: list[dict[str, tuple[Tensor, Tensor]]] = [{} for _ in self.cells]
        for drawn in self.batches:
            batch = self.streams.spread(drawn)
            with arithmetic(self.streams.protocol.precision, self.streams.device):
                logits = stack(batch.inputs, batch.positions).float()
            nll = F.cross_entropy(logits.flatten(0, -2), batch.targets.flatten(), ignore_index=IGNORE, reduction="none").view_as(batch.targets)
            answers = logits.argmax(dim=-1)
            for r, (cell, total) in enumerate(zip(self.cells, totals, strict=True)):
                for name, (value, count) in cell.task.score(replica(batch, r), Prediction(answers[r], nll[r])).items():
                    old = total.get(name, (0, 0))
                    total[name] = (old[0] + value, old[1] + count)
        stack.model.train()
        return [_judgement(total) for total in totals]


def _at_once(cells: Sequence[Cell]) -> int:
    """Examples of a replica."""
    cell = cells[0]
    if cell.device == "cpu":
        return EXAMPLES
    vocabulary = cell.task.io.vocab_out
    return max(EXAMPLES, LOGITS // (len(cells) * cell.task.answers * vocabulary))


def _judgement(totals: dict[str, tuple[Tensor, Tensor]]) -> Judgement:
    metrics = {name: (value / count).item() for name, (value, count) in totals.items() if value.dim() == 0}
    return metrics, {name.partition("/")[2]: _slice(*both) for name, both in totals.items() if both[0].dim() == 1}


def _slice(right: Tensor, counted: Tensor) -> dict[str, Any]:
    occurring = counted.nonzero().flatten()
    return {name: values.long().tolist() for name, values in (("at", occurring), ("right", right[occurring]), ("counted", counted[occurring]))}
