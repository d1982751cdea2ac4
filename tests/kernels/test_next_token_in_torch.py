"""One more token on a CPU: torch turns it, writes it into the cache and reads what is used."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from linbench.kernels.attention.caches import reads_next
from tests.helpers.next_token import DEVICE, Next, held_to_the_reference, next_token

pytestmark = [
    pytest.mark.skipif(DEVICE == "cuda", reason="a GPU has no torch form of it"),
    pytest.mark.usefixtures("poisoned_memory"),
]


@pytest.fixture
def make(generator: torch.Generator) -> Callable[..., Next]:
    return partial(next_token, generator, dtype=torch.float64)


@pytest.mark.parametrize("turned", [0, 6])
@pytest.mark.parametrize("seen", [0, 1, 62, 63, 64, 200])
def test_places_so_far_and_the_oldest_give_way(make: Callable[..., Next], seen: int, turned: int) -> None:
    held_to_the_reference(make((seen, seen), 63, 2, 8, 5), turned=turned)


@pytest.mark.parametrize("key_heads", [1, 2])
def test_fewer_heads_of_keys_and_scales_of_heads(make: Callable[..., Next], key_heads: int) -> None:
    token = make((30, 30), 65, 4, 16, 16, key_heads=key_heads)
    held_to_the_reference(token, turned=16)
    held_to_the_reference(token, scale=torch.tensor([0.3, 1.0, 2.0, 0.0], dtype=torch.float64))


def test_it_is_there_for_sequences_of_one_length_without_bias(make: Callable[..., Next]) -> None:
    alike, unlike = make((3, 3), 20, 2, 16, 16), make((3, 4), 20, 2, 16, 16)
    assert reads_next(alike.keys, alike.values, alike.seen, alike.q, biased=False)
    assert not reads_next(alike.keys, alike.values, alike.seen, alike.q, biased=True)
    assert not reads_next(unlike.keys, unlike.values, unlike.seen, unlike.q, biased=False)
    assert not reads_next(
        alike.keys, alike.values, alike.seen, alike.q.clone().requires_grad_(), biased=False
    )
