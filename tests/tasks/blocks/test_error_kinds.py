import pytest
import torch

from linbench.tasks.blocks.error_kinds import near_kinds

NEAR = torch.tensor([[True, True, False, False, False]])
CROSS = torch.tensor([[False, True, True, False, True]])


def test_an_answer_that_is_of_another_key_is_near_or_far() -> None:
    """One is near and two are far; the first is right, and the fourth of no key."""
    found = near_kinds(cross=CROSS, near=NEAR, share=0.25)
    kinds = {name: mean.value[0].double().tolist() for name, mean in found.items()}
    assert kinds["near"] == [0, 1, 0, 0, 0]
    assert kinds["far"] == [0, 0, 1, 0, 1]
    excess = found["near_excess"]
    assert excess.weight is not None
    assert float(excess.value.sum() / excess.weight.sum()) == pytest.approx((1 / 3) / 0.25)
