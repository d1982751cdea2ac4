"""Judging a model on a split: sums and counts that add up over batches."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linbench.models.backbone import Backbone
from linbench.tasks.base import IGNORE, Prediction, Split, Task

EVALUATION_BATCH = 256


def evaluate(model: Backbone, task: Task, *, seed: int, split: Split, examples: int, device: str) -> tuple[dict[str, float], dict[str, dict[str, list[int]]]]:
    """Metrics, and for every slice the integers that occur with how many answers were right and how many were due."""
    model.eval()
    totals: dict[str, tuple[Tensor, Tensor]] = {}
    with torch.no_grad():
        for start in range(0, examples, EVALUATION_BATCH):
            index = torch.arange(start, min(start + EVALUATION_BATCH, examples), device=device)
            batch = task.sample(index, seed=seed, split=split)
            logits = model(batch.inputs, batch.positions).float()
            nll = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORE, reduction="none").view_as(batch.targets)
            for name, (value, count) in task.score(batch, Prediction(logits.argmax(dim=-1), nll)).items():
                old = totals.get(name, (0, 0))
                totals[name] = (old[0] + value, old[1] + count)
    model.train()
    metrics = {name: (value / count).item() for name, (value, count) in totals.items() if value.dim() == 0}
    return metrics, {name.partition("/")[2]: _slice(*both) for name, both in totals.items() if both[0].dim() == 1}


def _slice(right: Tensor, counted: Tensor) -> dict[str, Any]:
    occurring = counted.nonzero().flatten()
    return {name: values.long().tolist() for name, values in (("at", occurring), ("right", right[occurring]), ("counted", counted[occurring]))}
