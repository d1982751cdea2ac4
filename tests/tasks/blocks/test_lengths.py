from collections.abc import Callable

import pytest
import torch

from linbench.common.errors import UserError
from linbench.tasks.blocks.lengths import Lengths, draw_length
from linbench.tasks.random import Stream


def test_every_length_is_as_likely(chi_squared: Callable[..., float]) -> None:
    stream = Stream.of(torch.arange(6000), seed=0, split="train")
    assert (
        chi_squared(draw_length(stream, 3, 12).flatten().bincount(minlength=13)[3:], torch.full((10,), 600))
        > 1e-3
    )
    even = draw_length(stream, 4, 10, step=2)
    assert even.shape == (6000, 1)
    assert chi_squared(even.flatten().bincount(minlength=11)[4::2], torch.full((4,), 1500)) > 1e-3
    assert not (even % 2).any()
    assert (draw_length(stream, 7, 7) == 7).all()


def test_both_grow_and_the_shortest_is_no_longer_than_the_longest() -> None:
    assert Lengths.parse({"min_length": 3, "max_length": 40}, where="task").longer(4) == {
        "min_length": 12,
        "max_length": 160,
    }
    with pytest.raises(UserError) as refused:
        Lengths.parse({"min_length": 9, "max_length": 8}, where="task")
    assert all(fact in str(refused.value) for fact in ("min_length", "max_length", "9", "8"))
