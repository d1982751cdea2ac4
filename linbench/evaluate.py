"""Judging models on a split: sums and counts that add up over batches."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.batches import draw, replica
from linbench.cell import Cell
from linbench.precision import arithmetic
from linbench.stack import Stack
from linbench.tasks.base import IGNORE, Prediction, Split

EVALUATION_BATCH = 256
"""Examples of a replica at a time."""

Judgement = tuple[dict[str, float], dict[str, dict[str, list[int]]]]
"""Metrics, and for every slice the integers that occur with how many answers were right and how many were due."""


@torch.no_grad()
def evaluate(stack: Stack, cells: Sequence[Cell], *, split: Split, examples: int) -> list[Judgement]:
    """What each replica is worth, on the split of its own seed."""
    stack.model.eval()
    totals: list[dict[str, tuple[Tensor, Tensor]]] = [{} for _ in cells]
    for start in range(0, examples, EVALUATION_BATCH):
        batch = draw(cells, torch.arange(start, min(start + EVALUATION_BATCH, examples), device=cells[0].device), split)
        with arithmetic(cells[0].protocol.precision, cells[0].device):
            logits = stack(batch.inputs, batch.positions).float()
        nll = F.cross_entropy(logits.flatten(0, -2), batch.targets.flatten(), ignore_index=IGNORE, reduction="none").view_as(batch.targets)
        answers = logits.argmax(dim=-1)
        for r, (cell, total) in enumerate(zip(cells, totals, strict=True)):
            for name, (value, count) in cell.task.score(replica(batch, r), Prediction(answers[r], nll[r])).items():
                old = total.get(name, (0, 0))
                total[name] = (old[0] + value, old[1] + count)
    stack.model.train()
    return [_judgement(total) for total in totals]


def _judgement(totals: dict[str, tuple[Tensor, Tensor]]) -> Judgement:
    metrics = {name: (value / count).item() for name, (value, count) in totals.items() if value.dim() == 0}
    return metrics, {name.partition("/")[2]: _slice(*both) for name, both in totals.items() if both[0].dim() == 1}


def _slice(right: Tensor, counted: Tensor) -> dict[str, Any]:
    occurring = counted.nonzero().flatten()
    return {name: values.long().tolist() for name, values in (("at", occurring), ("right", right[occurring]), ("counted", counted[occurring]))}
