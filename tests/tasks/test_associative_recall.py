from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, get_args

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.associative_recall import AssociativeRecall
from linbench.tasks.base import IGNORE, Batch, Split
from tests.helpers.cells import plan
from tests.helpers.tasks import assert_refused, build_task, sample, unanswered

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]


build = partial(build_task, AssociativeRecall)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"seq_len": 4, "vocab_size": 4},
        {"vocab_size": 21},
        {"seq_len": 256, "vocab_size": 256},
        {"unused": 3},
    ],
)
def test_structure(values: dict[str, Any]) -> None:
    task = build(**values)
    s, T, count = task.settings, task.seq_len, 200
    batch = sample(task, count)
    assert batch.inputs.shape == (count, T)
    assert s.keys + s.values == s.vocab_size - s.unused - 1
    assert s.values - s.keys in (0, 1)
    for row, (tokens, target) in enumerate(
        zip(batch.inputs.tolist(), batch.targets.flatten().tolist(), strict=True)
    ):
        means: dict[int, int] = {}
        for key, value in zip(tokens[:-2:2], tokens[1:-2:2], strict=True):
            assert 1 <= key <= s.keys < value <= s.keys + s.values
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


@pytest.fixture
def published() -> AssociativeRecall:
    task: AssociativeRecall = build(**AssociativeRecall.presets["seq-icl"].task)
    return task


def test_the_published_preset_is_as_published(published: AssociativeRecall) -> None:
    """20 pairs of 9 keys and 9 values, and 400 epochs of 5,000 sequences in 157 steps, but for their last."""
    s, protocol = published.settings, AssociativeRecall.presets["seq-icl"].protocol
    assert (published.seq_len, s.keys, s.values, published.io) == (42, 9, 9, IO(20, 20))
    assert sample(published, 500).inputs.max() == 18
    assert protocol["epochs"] * protocol["examples"] / protocol["batch_size"] == 62_500
    later = build(**AssociativeRecall.presets["seq-icl-2024"].task)
    assert (later.seq_len, later.settings.keys, later.settings.values) == (386, 19, 19)


def test_chance_of_the_published_preset(published: AssociativeRecall) -> None:
    later = build(**AssociativeRecall.presets["seq-icl-2024"].task)
    assert published.chance() == pytest.approx(0.310, abs=5e-4)
    assert later.chance() == pytest.approx(0.168, abs=5e-4)


def test_training_labels_every_token_and_tests_label_the_answer(published: AssociativeRecall) -> None:
    one = build(seq_len=42, unused=1)
    for split in get_args(Split):
        batch, alone = sample(published, 50, split), sample(one, 50, split)
        assert torch.equal(batch.inputs, alone.inputs)
        assert torch.equal(batch.positions, torch.arange(42).expand(50, -1))
        assert torch.equal(batch.targets[:, -1:], alone.targets)
        assert torch.equal(batch.slices["distance"][:, -1:], alone.slices["distance"])
        before = batch.inputs[:, 1:] if split == "train" else torch.full((50, 41), IGNORE)
        assert torch.equal(batch.targets[:, :-1], before)


def test_the_value_of_a_key_that_returns_can_be_foretold(published: AssociativeRecall) -> None:
    """There are 11.9 of 20 such pairs in a sequence."""
    batch = sample(published, 4000)
    right = (published.solve(unanswered(batch)) == batch.targets)[:, :40:2].sum(dim=1).double()
    returns = 20 - torch.tensor([len(set(row)) for row in batch.inputs[:, :40:2].tolist()]).double()
    assert torch.equal(right, returns)
    assert float(right.mean()) == pytest.approx(11.9, abs=0.1)


def test_older_cells_keep_their_identity() -> None:
    assert build().settings.identity() == {"seq_len": 40, "vocab_size": 20}
    (cell,) = plan("associative_recall", ["deltanet"], device="cpu")
    assert cell.identity["task"]["settings"] == {"seq_len": 40, "vocab_size": 20}
    assert cell.preset == "quick"


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"seq_len": 41}, "seq_len 41 42"),
        ({"vocab_size": 3}, "vocab_size 3 4"),
        ({"seq_len": 2}, "seq_len 2 4"),
        ({"unused": 17}, "20 unused 17 4 vocab_size 21"),
        ({"unused": -1}, "unused 0"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(AssociativeRecall, values, facts)


@pytest.mark.parametrize("values", [{}, {"seq_len": 1024, "vocab_size": 512}, {"labels": "all"}])
def test_explain_says_what_is_asked(values: dict[str, Any]) -> None:
    task = build(**values)
    batch = sample(task, 1)
    text = task.explain(batch, 0)
    tokens = batch.inputs[0].tolist()
    assert f"{tokens[0]} means {tokens[1]}" in text
    assert f"at position {task.seq_len - 1} stands {tokens[-1]}" in text
    assert f"is {int(batch.targets[0, -1])}." in text
    assert len(text) < 1500
