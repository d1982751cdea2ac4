from collections import Counter
from collections.abc import Callable

import torch

from linbench.tasks.blocks.timeline import (
    log2_distance,
    log2_distance_size,
    order_statements,
    place_statements,
    split_stream,
)
from linbench.tasks.random import Stream
from tests.helpers.tasks import stream


def test_others_follow_their_write_and_questions_come_last_in_any_order() -> None:
    others = torch.tensor([[1, 0, 1]]).expand(200, -1)
    order = order_statements(stream(200), others, writes=3, questions=2)
    assert {tuple(row) for row in order[:, :6].tolist()} == {(0, 4, 1, 3, 5, 2)}
    assert {tuple(row) for row in order[:, 6:].tolist()} == {(6, 7), (7, 6)}


def test_statements_stand_in_order_with_every_spacing_alike(chi_squared: Callable[..., float]) -> None:
    starts = place_statements(stream(2000), torch.tensor([2, 3]), 3)
    spacings = Counter((a, b - a - 2, 8 - b - 3) for a, b in starts.tolist())
    assert spacings.keys() == {(i, j, 3 - i - j) for i in range(4) for j in range(4 - i)}
    assert chi_squared(torch.tensor(list(spacings.values())), torch.full((10,), 200.0)) > 1e-3


def test_lengths_may_differ_from_example_to_example() -> None:
    lengths = torch.tensor([[1, 4, 2], [4, 2, 1], [2, 1, 4]])
    starts = place_statements(stream(3), lengths, 5)
    ends = starts + lengths
    assert (starts[:, 1:] >= ends[:, :-1]).all()
    assert ends.max() <= 12
    assert starts.min() >= 0
    assert place_statements(stream(3), lengths, 0).tolist() == [[0, 1, 5], [0, 4, 6], [0, 2, 3]]


def test_parts_are_streams_of_their_own() -> None:
    examples = stream(50)
    bits = split_stream(examples, 4).bits(torch.arange(3))
    assert len(bits.unique()) == bits.numel() == 50 * 4 * 3
    assert torch.equal(split_stream(Stream(examples.key[7:8]), 4).bits(torch.arange(3)), bits[28:32])


def test_doublings() -> None:
    distances = torch.tensor([[1, 2, 3], [4, 7, 8]])
    assert log2_distance(distances).tolist() == [[0, 1, 1], [2, 2, 3]]
    for below in range(2, 70):
        assert log2_distance_size(below) == int(log2_distance(torch.tensor(below - 1))) + 1
