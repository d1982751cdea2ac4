import torch

from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.blocks.exact_match import exact_match


def test_a_value_counts_once_and_only_if_all_of_it_is_right() -> None:
    targets = torch.tensor(
        [[1, 2, 3, 4, 5, 6], [1, 2, IGNORE, 4, IGNORE, IGNORE], [1, 2, 3, IGNORE, IGNORE, IGNORE]]
    )
    answers = torch.tensor([[1, 2, 3, 4, 0, 6], [1, 2, 9, 0, 5, 6], [0, 2, 3, 4, 5, 6]])
    zeros = torch.zeros_like(targets)
    value, weight = exact_match(
        Batch(zeros, zeros, targets, {}), Prediction(answers, zeros.float()), length=3
    )
    assert weight is not None
    assert weight.tolist() == [[1, 0, 0, 1, 0, 0], [1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]]
    assert (value & weight).tolist() == [[1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]


def test_values_may_have_different_lengths() -> None:
    targets = torch.tensor([[1, 2, 3, 4, 5, IGNORE], [1, 2, 3, 4, 5, 6]])
    answers = torch.tensor([[1, 2, 3, 0, 5, 6], [0, 2, 3, 4, 5, 6]])
    length = torch.tensor([[2, 0, 2, 0, 1, 0], [1, 5, 0, 0, 0, 0]])
    zeros = torch.zeros_like(targets)
    value, weight = exact_match(
        Batch(zeros, zeros, targets, {}), Prediction(answers, zeros.float()), length=length
    )
    assert weight is not None
    assert weight.tolist() == [[1, 0, 1, 0, 1, 0], [1, 1, 0, 0, 0, 0]]
    assert value.tolist() == [[1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0]]
