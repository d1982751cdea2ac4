"""The accuracy that MAD reports."""

import torch
from torch import Tensor

from linbench.tasks.base import IGNORE, Batch, Prediction, Task

ROWS = 128
"""Rows of the batches that MAD averages over."""


class MacroAccuracy(Task):
    """A task that also reports "macro_accuracy": the mean over classes, batch by batch, not over places."""

    def score(
        self, batch: Batch, prediction: Prediction, *, slices: bool = True
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Return what `Task.score` returns, and "macro_accuracy".

        The latter is summed over batches of 128 rows, the last of which may have fewer; its weight is their
        number.
        """
        assert self.io.vocab_out is not None
        averages = macro_accuracy(prediction.answers, batch.targets, classes=self.io.vocab_out)
        return super().score(batch, prediction, slices=slices) | {
            "macro_accuracy": (averages.sum(), averages.new_full((), len(averages)))
        }


def macro_accuracy(answers: Tensor, targets: Tensor, *, classes: int) -> Tensor:
    """Return, for every batch of 128 rows, the mean over classes of how many of their targets were right.

    A class that is answered but never asked for counts as wrong; one that is neither is left out. This is
    torchmetrics' MulticlassAccuracy with "macro".

    Args:
        answers: ids [B, N].
        targets: ids [B, N].
        classes: number of ids.
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

    asked, answered = count(targets, due), count(answers, due)
    right = count(targets, due & (answers == targets))
    recall = right / asked.clamp(min=1)
    return recall.sum(dim=1) / ((asked + answered) > 0).sum(dim=1).clamp(min=1)
