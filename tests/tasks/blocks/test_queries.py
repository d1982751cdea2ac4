from collections.abc import Callable

import pytest
import torch

from linbench.tasks.blocks.queries import filler_tokens, power_law_slots
from tests.helpers.tasks import stream

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]


@pytest.mark.parametrize("power_a", [0.01, 0.5, 1, 2])
def test_the_first_slot_follows_the_power_law(chi_squared: Probability, power_a: float) -> None:
    slots = power_law_slots(stream(N), 1, of=10, power_a=power_a)[:, 0]
    weights = torch.arange(1, 11, dtype=torch.float64) ** (power_a - 1)
    assert chi_squared(slots.bincount(minlength=10), N * weights / weights.sum()) > ALPHA


def test_later_slots_are_drawn_from_those_that_are_left(chi_squared: Probability) -> None:
    slots = power_law_slots(stream(N), 2, of=4, power_a=0.5)
    p = torch.arange(1, 5, dtype=torch.float64) ** -0.5
    p = p / p.sum()
    expected = torch.stack(
        [
            N * p[i] * p[j] / (1 - p[i]) if i != j else torch.zeros((), dtype=torch.float64)
            for i in range(4)
            for j in range(4)
        ]
    )
    counts = (4 * slots[:, 0] + slots[:, 1]).bincount(minlength=16)
    assert not counts[expected == 0].any()
    assert chi_squared(counts[expected > 0], expected[expected > 0]) > ALPHA


@pytest.mark.parametrize("keys", [[3], [0, 6], [6, 2, 3], [5, 4, 3, 2, 1]])
def test_random_filler_is_uniform_over_all_tokens_but_the_keys(
    chi_squared: Probability, keys: list[int]
) -> None:
    tokens = filler_tokens("random", stream(N), 3, vocab_size=7, keys=torch.tensor(keys).expand(N, -1))
    assert tokens.shape == (N, 3)
    for place in range(3):
        counts = tokens[:, place].bincount(minlength=7)
        assert not counts[keys].any()
        others = [token for token in range(7) if token not in keys]
        assert chi_squared(counts[others], torch.full((len(others),), N / len(others))) > ALPHA


def test_each_row_leaves_out_its_own_keys() -> None:
    keys = torch.stack([torch.arange(100) % 5, torch.arange(100) % 5 + 1], dim=1)
    tokens = filler_tokens("random", stream(100), 200, vocab_size=6, keys=keys)
    for row in range(100):
        assert set(tokens[row].tolist()) == set(range(6)) - set(keys[row].tolist())


def test_other_fillers_know_no_keys(chi_squared: Probability) -> None:
    keys = torch.tensor([[1, 2]]).expand(N, -1)
    assert not filler_tokens("zero", stream(N), 4, vocab_size=7, keys=keys).any()
    tokens = filler_tokens("published", stream(N), 1, vocab_size=7, keys=keys)
    assert chi_squared(tokens.flatten().bincount(minlength=7), torch.full((7,), N / 7)) > ALPHA
