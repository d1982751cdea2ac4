"""A batch as a model, and a solver, may see it."""

import torch

from linbench.tasks.base import IGNORE, Batch


def unanswered(batch: Batch) -> Batch:
    """Without answers, and without what scores are made of besides."""
    return Batch(batch.inputs, batch.positions, torch.full_like(batch.targets, IGNORE), {}, {})
