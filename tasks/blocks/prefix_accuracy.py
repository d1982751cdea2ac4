"""Means that several tasks report."""

import torch

from linbench.tasks.base import Batch, Mean, Prediction


def right_so_far(batch: Batch, prediction: Prediction) -> Mean:
    """Whether this answer and all before it in the sequence are right, where answers stand in their order."""
    right = (prediction.answers == batch.targets) | ~batch.due
    return Mean(right.to(torch.int64).cumprod(dim=1))
