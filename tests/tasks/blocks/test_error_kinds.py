import pytest
import torch

from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.blocks.error_kinds import near_kinds

TARGETS = torch.tensor([[1, 2, 3, 4, 5, IGNORE]])
ANSWERS = torch.tensor([[1, 9, 8, 7, 8, 0]])
NEAR = torch.tensor([[True, True, False, False, False, False]])
SEEN = torch.tensor([[True, True, True, False, True, False]])


def test_a_wrong_answer_is_near_far_or_alien() -> None:
    """One is right, one near, two far and one alien; of the three in the sequence one is near."""
    batch = Batch(torch.zeros(1, 6), torch.zeros(1, 6), TARGETS, {})
    found = near_kinds(batch, Prediction(ANSWERS, torch.zeros(1, 6)), near=NEAR, seen=SEEN, share=0.25)
    kinds = {name: mean.value[0, :5].double().tolist() for name, mean in found.items()}
    assert kinds["near"] == [0, 1, 0, 0, 0]
    assert kinds["far"] == [0, 0, 1, 0, 1]
    assert kinds["alien"] == [0, 0, 0, 1, 0]
    excess = found["near_excess"]
    assert excess.weight is not None
    assert float(excess.value.sum() / excess.weight.sum()) == pytest.approx((1 / 3) / 0.25)
