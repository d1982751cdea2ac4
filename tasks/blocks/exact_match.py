"""Values of several tokens, right only if every token is."""

import torch

from linbench.tasks.base import Batch, Prediction, WeightedMean

__all__ = ["exact_match"]


def exact_match(batch: Batch, prediction: Prediction, *, length: int) -> WeightedMean:
    """Return whether values at `length` adjacent places are right at all their used places.

    Each value counts once, at its first place, which must be used.
    """
    due, right = (
        x.reshape(x.shape[0], -1, length) for x in (batch.is_answer, prediction.answers == batch.targets)
    )
    first = torch.arange(length, device=due.device) == 0
    whole = (right | ~due).all(dim=2, keepdim=True)
    return WeightedMean((whole & first).flatten(1), (due & first).flatten(1))
