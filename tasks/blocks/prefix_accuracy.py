"""Accuracy of all answers so far in a sequence."""

import torch

from linbench.tasks.base import Batch, Prediction, WeightedMean


def prefix_correct(batch: Batch, prediction: Prediction) -> WeightedMean:
    """Return whether this answer and all before it in the sequence are right.

    Answers must stand in their order.
    """
    right = (prediction.answers == batch.targets) | ~batch.is_answer
    return WeightedMean(right.to(torch.int64).cumprod(dim=1))
