from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.associative_recall import AssociativeRecall
from linbench.tasks.base import Batch
from tests.helpers.tasks import assert_refused, build_task, sample

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]


build = partial(build_task, AssociativeRecall)


@pytest.mark.parametrize(
    "values", [{}, {"seq_len": 4, "vocab_size": 4}, {"vocab_size": 21}, {"seq_len": 256, "vocab_size": 256}]
)
def test_structure(values: dict[str, Any]) -> None:
    task = build(**values)
    s, T, count = task.settings, task.seq_len, 200
    batch = sample(task, count)
    assert batch.inputs.shape == (count, T)
    assert s.keys + s.values == s.vocab_size - 1
    assert s.values - s.keys in (0, 1)
    for row, (tokens, target) in enumerate(
        zip(batch.inputs.tolist(), batch.targets.flatten().tolist(), strict=True)
    ):
        means: dict[int, int] = {}
        for key, value in zip(tokens[:-2:2], tokens[1:-2:2], strict=True):
            assert 1 <= key <= s.keys < value < s.vocab_size
            assert means.setdefault(key, value) == value
        assert tokens[-2] == 0
        assert means[tokens[-1]] == target
        stood = [at for at, token in enumerate(tokens[:-1]) if token == tokens[-1]]
        assert int(batch.slices["mentions"][row]) == len(stood)
        assert int(batch.slices["distance"][row]) == T - 1 - stood[-1]
        assert int(batch.positions[row]) == T - 1


def test_a_hand_made_sequence() -> None:
    inputs = torch.tensor([[1, 9, 2, 7, 1, 9, 0, 2]])
    batch = Batch(inputs, torch.tensor([[7]]), torch.zeros(1, 1, dtype=torch.int64), {})
    assert build(seq_len=8, vocab_size=10).solve(batch) == 7


def test_keys_and_values_are_even(chi_squared: Probability) -> None:
    task = build(vocab_size=12, seq_len=20)
    batch = sample(task, N)
    for at in (0, 10):
        assert chi_squared(batch.inputs[:, at].bincount(minlength=6)[1:], torch.full((5,), N / 5)) > ALPHA
    assert chi_squared(batch.inputs[:, 1].bincount(minlength=12)[6:], torch.full((6,), N / 6)) > ALPHA


def test_keys_may_share_a_value(chi_squared: Probability) -> None:
    batch = sample(build(vocab_size=9, seq_len=6), N)
    different = batch.inputs[:, 0] != batch.inputs[:, 2]
    shared = (batch.inputs[:, 1] == batch.inputs[:, 3])[different]
    assert (
        chi_squared(shared.long().bincount(minlength=2), len(shared) * torch.tensor([3 / 4, 1 / 4])) > ALPHA
    )


def test_every_key_that_was_there_is_as_likely_to_be_asked(chi_squared: Probability) -> None:
    """Not as often as it stood."""
    batch = sample(build(vocab_size=7, seq_len=12), N)
    keys = batch.inputs[:, :-2:2]
    there = torch.stack([(keys == key).any(dim=1) for key in (1, 2, 3)], dim=1)
    rank = (there * (torch.arange(1, 4) < batch.inputs[:, -1:])).sum(dim=1)
    for count in (2, 3):
        of_these = rank[there.sum(dim=1) == count]
        assert (
            chi_squared(of_these.bincount(minlength=count), torch.full((count,), len(of_these) / count))
            > ALPHA
        )


@pytest.mark.parametrize(("vocab_size", "seq_len"), [(6, 8), (7, 8), (8, 10)])
def test_chance_is_that_of_the_commonest_value(vocab_size: int, seq_len: int) -> None:
    """Over all pairs there can be."""
    task = build(vocab_size=vocab_size, seq_len=seq_len)
    keys, values, pairs = task.settings.keys, task.settings.values, seq_len // 2 - 1
    total, count = 0.0, 0
    for means in product(range(values), repeat=keys):
        for stood in product(range(keys), repeat=pairs):
            held = Counter(means[key] for key in set(stood))
            total, count = total + max(held.values()) / len(set(stood)), count + 1
    assert task.chance() == pytest.approx(total / count, abs=1e-8)
    assert build(vocab_size=4).chance() == 1 / 2, "there is one key, so that the sequence must not be read"


def test_chance_of_the_published_settings() -> None:
    task, right = build(), 0
    batch = sample(task, 5000)
    for tokens, target in zip(batch.inputs.tolist(), batch.targets.flatten().tolist(), strict=True):
        held = Counter(dict(zip(tokens[:-2:2], tokens[1:-2:2], strict=True)).values())
        right += held.most_common(1)[0][0] == target
    assert task.chance() == pytest.approx(0.3, abs=0.001)
    assert right / 5000 == pytest.approx(task.chance(), abs=0.025)


def test_tokens() -> None:
    assert build().io == IO(20, 20)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"seq_len": 41}, "seq_len 41 42"),
        ({"vocab_size": 3}, "vocab_size 3 4"),
        ({"seq_len": 2}, "seq_len 2 4"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(AssociativeRecall, values, facts)


@pytest.mark.parametrize("values", [{}, {"seq_len": 1024, "vocab_size": 512}])
def test_explain_says_what_is_asked(values: dict[str, Any]) -> None:
    task = build(**values)
    batch = sample(task, 1)
    text = task.explain(batch, 0)
    tokens = batch.inputs[0].tolist()
    assert f"{tokens[0]} means {tokens[1]}" in text
    assert f"at position {task.seq_len - 1} stands {tokens[-1]}" in text
    assert f"is {int(batch.targets)}." in text
    assert len(text) < 1500
