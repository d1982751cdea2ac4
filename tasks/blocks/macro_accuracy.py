"""The accuracy that MAD reports."""

import torch
from torch import Tensor

from linbench.tasks.base import IGNORE, Batch, Prediction, Task

ROWS = 128
"""In each of the batches that MAD averages over."""


class MacroAccuracy(Task):
    """Also reports "macro_accuracy", which is no mean over places: the mean over classes, batch by batch."""

    def score(
        self, batch: Batch, prediction: Prediction, *, slices: bool = True
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """As of any task, and "macro_accuracy": its sum over batches of 128 rows, the last of which may have
        fewer, and how many these are."""
        assert self.io.vocab_out is not None
        averages = macro_accuracy(prediction.answers, batch.targets, classes=self.io.vocab_out)
        return super().score(batch, prediction, slices=slices) | {
            "macro_accuracy": (averages.sum(), averages.new_tensor(float(len(averages))))
        }


def macro_accuracy(answers: Tensor, targets: Tensor, *, classes: int) -> Tensor:
    """answers, targets [B, N] -> float64 [ceil(B / 128)]: of every batch, the mean over classes of how many
    of their targets were right.

    A class that is answered but never asked for counts as wrong; one that is neither is left out.
    torchmetrics' MulticlassAccuracy, "macro".
    """
    batches = -(-len(targets) // ROWS)
    due = targets != IGNORE
    batch = torch.arange(len(targets), device=targets.device)[:, None] // ROWS

    def count(ids: Tensor, where: Tensor) -> Tensor:
        cell = batch * classes + ids.masked_fill(~due, 0)
        return (
            torch.zeros(batches * classes, dtype=torch.float64, device=ids.device)
            .index_add(0, cell.flatten(), where.double().flatten())
            .view(batches, -1)
        )

    asked, answered, right = (
        count(targets, due),
        count(answers, due),
        count(targets, due & (answers == targets)),
    )
    recall = right / asked.clamp(min=1)
    return recall.sum(dim=1) / ((asked + answered) > 0).sum(dim=1).clamp(min=1)
