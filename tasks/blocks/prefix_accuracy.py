"""Means that several tasks report."""

import torch

from linbench.tasks.base import Batch, Prediction, WeightedMean


def prefix_correct(batch: Batch, prediction: Prediction) -> WeightedMean:
    """Whether this answer and all before it in the sequence are right, where answers stand in their order."""
    right = (prediction.answers == batch.targets) | ~batch.is_answer
    return WeightedMean(right.to(torch.int64).cumprod(dim=1))
