from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any, get_args

import pytest
import torch

from linbench.tasks.base import IGNORE, Batch, Prediction, Split
from linbench.tasks.memorization import Memorization
from tests.helpers.tasks import assert_refused, build_task, sample

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]


build = partial(build_task, Memorization)


@pytest.mark.parametrize(
    "values", [{}, {"vocab_size": 5, "seq_len": 2}, {"vocab_size": 10}, {"vocab_size": 8192}]
)
def test_sequences_and_labels_are_as_published(values: dict[str, Any]) -> None:
    task = build(**values)
    s, batch = task.settings, sample(task, 300)
    assert (s.keys, s.values) == ((s.vocab_size - 1) // 2, s.vocab_size - 1 - (s.vocab_size - 1) // 2)
    assert batch.inputs.shape == (300, s.seq_len)
    assert (batch.inputs[:, 1::2] == s.vocab_size - 1).all()
    assert torch.equal(batch.positions, torch.arange(1, s.seq_len, 2).repeat(300, 1))
    assert torch.equal(batch.slices["order"], batch.positions // 2)
    assert batch.inputs[:, ::2].max() < s.keys <= batch.targets.min()
    assert batch.targets.max() < s.keys + s.values


def facts(task: Memorization, batch: Batch) -> dict[int, int]:
    """Return the value of each key, and check that it has only one."""
    pairs = set(zip(batch.inputs[:, ::2].flatten().tolist(), batch.targets.flatten().tolist(), strict=True))
    found = dict(pairs)
    assert len(found) == len(pairs)
    assert len(set(found.values())) == len(found), "no two keys share a value"
    assert len(found) == task.settings.keys
    return found


def test_facts_are_the_same_in_all_sequences_splits_and_seeds() -> None:
    task = build()
    known = [
        facts(task, sample(task, 200, seed=seed, split=split)) for seed in (0, 1) for split in get_args(Split)
    ]
    assert all(found == known[0] for found in known)
    longer = build(**task.longer(3))
    assert longer.seq_len == 96
    assert facts(longer, sample(longer, 100)) == known[0]
    other = build(map_seed=1)
    assert facts(other, sample(other, 200)) != known[0]


def test_keys_are_uniform(chi_squared: Probability) -> None:
    task = build(vocab_size=11)
    keys = sample(task, N).inputs[:, ::2]
    assert (
        chi_squared((keys[:, 0] * 5 + keys[:, 15]).bincount(minlength=25), torch.full((25,), N / 25)) > ALPHA
    )


def test_any_value_may_go_with_any_key(chi_squared: Probability) -> None:
    # 2 keys, 3 values
    maps = [
        tuple(build(vocab_size=6, map_seed=seed)._facts(torch.device("cpu")).tolist()) for seed in range(120)
    ]
    possible = list(permutations((2, 3, 4), 2))
    assert set(maps) == set(possible)
    assert chi_squared(torch.tensor([maps.count(each) for each in possible]), torch.full((6,), 20.0)) > ALPHA


def test_the_solver_knows_the_facts_and_reads_the_key() -> None:
    task = build(vocab_size=11)
    known = facts(task, sample(task, 100))
    batch = Batch(torch.tensor([[3, 10, 0, 10]]), torch.tensor([[3, 1]]), torch.full((1, 2), IGNORE), {})
    assert task.solve(batch).tolist() == [[known[0], known[3]]]
    drawn = sample(task, 300, split="test")
    scores = task.score(drawn, Prediction(task.solve(drawn), torch.zeros(drawn.targets.shape)))
    assert scores["accuracy"] == (4800, 4800)
    assert scores["macro_accuracy"] == (3, 3)


def test_chance_is_any_value() -> None:
    assert build().chance() == 1 / 127
    task = build(vocab_size=10)
    assert float((sample(task, 2000).targets == 7).double().mean()) in (
        0.0,
        pytest.approx(1 / 4, abs=0.02),
    ), "one of five values goes with no key"
    assert task.chance() == 1 / 4


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"seq_len": 31}, "seq_len 31 32"),
        ({"vocab_size": 4}, "vocab_size 4 5"),
        ({"map_seed": -1}, "map_seed 1 0"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Memorization, values, facts)


def test_an_example_in_words() -> None:
    task = build(seq_len=8)
    batch = sample(task, 1)
    text = task.explain(batch, 0)
    for at, target in zip(batch.positions[0].tolist(), batch.targets[0].tolist(), strict=True):
        assert f"at position {at} for key {int(batch.inputs[0, at - 1])} it is {target}" in text
    assert len(build(seq_len=1024).explain(sample(build(seq_len=1024), 1), 0)) < 1500
