import torch

from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.blocks.prefix_accuracy import prefix_correct


def test_a_sequence_is_right_up_to_its_first_error() -> None:
    targets = torch.tensor([[1, 2, 3, 4], [1, 2, 3, IGNORE], [1, 2, 3, 4]])
    answers = torch.tensor([[1, 2, 0, 4], [1, 2, 3, 9], [0, 2, 3, 4]])
    batch = Batch(torch.zeros(3, 4), torch.arange(4).expand(3, 4), targets, {})
    found = prefix_correct(batch, Prediction(answers, torch.zeros(3, 4)))
    assert found.value.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
    assert found.weight is None
