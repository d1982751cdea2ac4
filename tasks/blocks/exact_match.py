"""Values of several tokens, right only if every token is."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from linbench.tasks.base import Batch, Prediction, WeightedMean

__all__ = ["exact_match"]


def exact_match(batch: Batch, prediction: Prediction, *, length: int | Tensor) -> WeightedMean:
    """Return whether values at adjacent places are right at all their used places.

    Each value counts once, at its first place, which must be used.

    Args:
        batch: examples.
        prediction: of these.
        length: places of every value; or how many a value takes at its first place, and 0 at others [B, N].
    """
    place = torch.arange(batch.targets.shape[1], device=batch.targets.device)
    if isinstance(length, int):
        length = length * (batch.is_answer & (place % length == 0)).to(torch.int64)
    wrong = batch.is_answer & (prediction.answers != batch.targets)
    before = pad(wrong.cumsum(dim=1), (1, 0))
    whole = before.gather(1, place + length) == before[:, :-1]
    return WeightedMean(whole & (length > 0), length > 0)
