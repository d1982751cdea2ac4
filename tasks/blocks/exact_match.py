"""Values of several tokens, each of them asked for: how often one is right as a whole."""

import torch

from linbench.tasks.base import Batch, Prediction, WeightedMean

__all__ = ["exact_match"]


def exact_match(batch: Batch, prediction: Prediction, *, length: int) -> WeightedMean:
    """Of values at `length` places side by side, those right at every place that is due. Each counts once, at
    its first place, which must be due."""
    due, right = (
        x.reshape(x.shape[0], -1, length) for x in (batch.is_answer, prediction.answers == batch.targets)
    )
    first = torch.arange(length, device=due.device) == 0
    whole = (right | ~due).all(dim=2, keepdim=True)
    return WeightedMean((whole & first).flatten(1), (due & first).flatten(1))
