import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction, Split
from linbench.tasks.in_context_recall import InContextRecall, NoisyRecall
from tests.helpers.tasks import assert_refused, unanswered
from tests.helpers.tasks import sample as draw

N = 10_000
ALPHA = 1e-3
Probability = Callable[..., float]
SETTINGS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "noisy": {"vocab_size": 32, "noise_vocab_size": 16, "frac_noise": 0.2},
    "much noise": {"vocab_size": 11, "noise_vocab_size": 3, "frac_noise": 0.8, "seq_len": 20},
    "one query": {"multi_query": False, "seq_len": 20},
    "one query, noisy": {
        "multi_query": False,
        "vocab_size": 13,
        "noise_vocab_size": 3,
        "frac_noise": 0.5,
        "seq_len": 24,
    },
    "many keys": {"vocab_size": 200, "seq_len": 32},
    "smallest": {"vocab_size": 4, "seq_len": 6},
    "odd vocabulary": {"vocab_size": 9, "seq_len": 16},
}


def build(task: type[InContextRecall] = InContextRecall, **values: Any) -> InContextRecall:
    return task(task.Settings.parse(values, where="task"))


sample = partial(draw, split="test")


def whole(task: InContextRecall, count: int) -> Tensor:
    """The inputs and what comes after the last of them."""
    batch = sample(task, count, split="train")
    return torch.cat([batch.inputs, batch.targets[:, -1:]], dim=1)


def pairs_of(task: InContextRecall, count: int) -> Tensor:
    """[B, P, 2]."""
    tokens = whole(task, count)
    if not task.settings.multi_query:
        tokens = torch.cat([tokens[:, :-3], tokens[:, -2:]], dim=1)
    return tokens.view(count, -1, 2)


@pytest.mark.parametrize("values", SETTINGS.values(), ids=SETTINGS)
def test_sequences_and_labels_are_as_published(values: dict[str, Any]) -> None:
    task, count = build(**values), 200
    s = task.settings
    train, test, answers = (
        sample(task, count, split="train"),
        sample(task, count),
        sample(build(**values, train_on="answers"), count),
    )
    assert task.io == IO(s.vocab_size, s.vocab_size)
    assert train.inputs.shape == (count, s.seq_len - s.multi_query) == (count, task.seq_len)
    assert torch.equal(train.targets[:, :-1], train.inputs[:, 1:]), "training learns every next token"
    for batch, places in ((test, range(task.seq_len)), (answers, task.test_positions)):
        assert torch.equal(batch.positions, torch.tensor(places).repeat(count, 1))
        sequence = torch.cat([batch.inputs, batch.targets[:, -1:]], dim=1).tolist()
        for row, targets, seen, distance in zip(
            sequence,
            batch.targets.tolist(),
            batch.slices["seen"].tolist(),
            batch.slices["distance"].tolist(),
            strict=True,
        ):
            expected = labels(task, row)
            found = {
                at: (t, n, d)
                for at, t, n, d in zip(places, targets, seen, distance, strict=True)
                if t != IGNORE
            }
            assert found == expected
            assert not any(n + d for t, n, d in zip(targets, seen, distance, strict=True) if t == IGNORE)


def labels(task: InContextRecall, tokens: list[int]) -> dict[int, tuple[int, int, int]]:
    """Return for each position the answer, and how often and how far away its key was shown before.

    The sequence is checked on the way.
    """
    s = task.settings
    due, shown = {}, dict[int, tuple[int, int, int]]()
    if not s.multi_query:
        assert tokens[-3] == s.vocab_size - 1
    for at in [*range(0, s.seq_len - 2, 2), len(tokens) - 2]:
        key, value = tokens[at], tokens[at + 1]
        if key >= s.keys:
            assert min(key, value) >= s.keys + s.values
            assert max(key, value) < s.keys + s.values + s.noise_vocab_size
            continue
        assert s.keys <= value < s.keys + s.values
        known, seen, last = shown.get(key, (value, 0, 0))
        assert value == known, "a key keeps its value"
        if (seen and s.multi_query) or at == len(tokens) - 2:
            assert seen, "the last key was shown"
            due[at] = value, seen, at - last
        shown[key] = value, seen + 1, at
    return due


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_only_training_learns_more_than_is_asked_for(split: Split) -> None:
    everything = split == "train"
    assert bool(sample(build(), 50, split=split).is_answer.all()) == everything
    for values in ({"multi_query": True}, {"multi_query": False}):
        asked, other = (
            sample(build(**values, train_on="answers"), 50, split="train"),
            sample(build(**values), 50, split="train"),
        )
        assert torch.equal(asked.inputs, other.inputs)
        assert not asked.is_answer.all() or not values["multi_query"]
    assert build(train_on="answers").answers == 64
    assert build(train_on="answers", multi_query=False).answers == 1
    assert build().answers == 127


def test_keys_values_and_noise_are_uniform(chi_squared: Probability) -> None:
    task = build(vocab_size=18, noise_vocab_size=5, frac_noise=0.3, seq_len=40)  # 6 keys, 7 values
    pairs = pairs_of(task, N)
    for place in (0, 7, 18):
        key, value = pairs[:, place].unbind(dim=1)
        quiet = key < 6
        counts = (key * 7 + value - 6)[quiet].bincount(minlength=42)
        assert chi_squared(counts, torch.full((42,), int(quiet.sum()) / 42)) > ALPHA
        counts = ((key - 13) * 5 + value - 13)[~quiet].bincount(minlength=25)
        assert chi_squared(counts, torch.full((25,), int((~quiet).sum()) / 25)) > ALPHA


def test_two_keys_have_values_of_their_own_which_may_be_equal(chi_squared: Probability) -> None:
    pairs = pairs_of(build(vocab_size=8, seq_len=8), N)
    (a, x), (b, y) = pairs[:, 0].T, pairs[:, 1].T
    other = a != b
    assert (
        chi_squared(
            ((x - 4) * 4 + y - 4)[other].bincount(minlength=16), torch.full((16,), int(other.sum()) / 16)
        )
        > ALPHA
    )
    assert torch.equal(x[~other], y[~other])


def test_a_share_of_the_pairs_is_noise_but_for_one(chi_squared: Probability) -> None:
    task = build(vocab_size=12, noise_vocab_size=4, frac_noise=0.7, seq_len=8)
    noise = pairs_of(task, N)[:, :3, 0] >= 8
    assert not pairs_of(task, N)[:, 3, 0].ge(8).any()
    # by which of the four is kept: each of three, or the last, when at worst the first is kept all the same
    f = 0.7
    expected = torch.zeros(8, dtype=torch.float64)
    for kept in range(4):
        for flags in range(8):
            chosen = [bool(flags >> i & 1) for i in range(3)]
            chance = 0.25
            for flag in chosen:
                chance *= f if flag else 1 - f
            chosen = [flag and i != kept for i, flag in enumerate(chosen)]
            chosen[0] &= not all(chosen)
            expected[sum(flag << i for i, flag in enumerate(chosen))] += chance
    found = (noise.long() << torch.arange(3)).sum(dim=1).bincount(minlength=8)
    possible = expected > 0
    assert not found[~possible].any()
    assert chi_squared(found[possible], N * expected[possible]) > ALPHA


def test_each_key_that_was_shown_is_as_likely_to_be_the_last(chi_squared: Probability) -> None:
    pairs = pairs_of(build(vocab_size=16, seq_len=8), N)[:, :, 0]
    first, second, third, last = pairs.T
    distinct = (first != second) & (second != third) & (first != third)
    which = (pairs[:, :3] == last[:, None]).long().argmax(dim=1)
    assert (
        chi_squared(which[distinct].bincount(minlength=3), torch.full((3,), int(distinct.sum()) / 3)) > ALPHA
    )
    twice = (first == second) & (second != third)
    asked_twice = int((last == first)[twice].sum())
    assert (
        chi_squared(
            torch.tensor([asked_twice, int(twice.sum()) - asked_twice]),
            torch.full((2,), int(twice.sum()) / 2),
        )
        > ALPHA
    ), "not by how often it was"


@pytest.mark.parametrize(
    ("task", "values", "measured"),
    [
        (InContextRecall, {}, 56.0),
        (InContextRecall, {"vocab_size": 128}, 23.9),
        (InContextRecall, {"multi_query": False}, 1.0),
        (NoisyRecall, {}, 43.7),
        (NoisyRecall, {"frac_noise": 0.8}, 7.6),
    ],
)
def test_as_many_answers_as_the_published_generator_asks_for(
    task: type[InContextRecall], values: dict[str, Any], measured: float
) -> None:
    s = build(task, **values).settings
    expected, pairs = 1.0, s.seq_len // 2
    for kept in range(pairs if s.multi_query else 0):
        unseen = 1.0
        for pair in range(pairs - 1):
            key = 1.0 if pair == kept else 1 - s.frac_noise
            expected += key * (1 - unseen) / pairs
            unseen *= 1 - key / s.keys
    due = sample(build(task, **values), 4000).is_answer.sum(dim=1).double()
    assert abs(float(due.mean()) - expected) <= 4 * float(due.std()) / 4000**0.5
    assert expected == pytest.approx(measured, abs=0.3), "which was a mean over a sample"


def test_the_solver_reads_the_sequence_by_hand() -> None:
    task = build(vocab_size=12, noise_vocab_size=4, seq_len=12)  # keys 0 to 3, values 4 to 7
    tokens = torch.tensor([[2, 7, 9, 9, 0, 4, 2, 7, 0, 4, 3]])
    batch = Batch(tokens, torch.arange(11)[None], torch.full((1, 11), IGNORE), {})
    answers = task.solve(batch)[0].tolist()
    assert [answers[at] for at in (6, 8)] == [7, 4]
    assert answers[10] == 4, "which it cannot know"


@pytest.mark.parametrize("values", SETTINGS.values(), ids=SETTINGS)
def test_the_solver_is_always_right(values: dict[str, Any]) -> None:
    task = build(**values)
    batch = sample(task, 300)
    answers = task.solve(unanswered(batch))
    scores = task.score(batch, Prediction(answers, torch.zeros(answers.shape)))
    right, counted = scores["accuracy"]
    assert right == counted == batch.is_answer.sum()
    assert scores["macro_accuracy"] == (3, 3)


def test_noise_as_published_and_none() -> None:
    plain, noisy = build(), build(NoisyRecall)
    assert (noisy.settings.vocab_size, noisy.settings.noise_vocab_size, noisy.settings.frac_noise) == (
        32,
        16,
        0.2,
    )
    assert (
        (noisy.settings.keys, noisy.settings.values) == (plain.settings.keys, plain.settings.values) == (8, 8)
    )
    assert (plain.skill, noisy.skill) == ("remember", "filter")


def test_longer_ones_have_the_same_keys() -> None:
    task = build(NoisyRecall, multi_query=False)
    longer = build(NoisyRecall, multi_query=False, **task.longer(3))
    assert longer.seq_len == 3 * task.seq_len == 384
    assert longer.settings.keys == task.settings.keys


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"seq_len": 63}, "seq_len 63 64"),
        ({"frac_noise": 0.5}, "frac_noise 0.5 noise_vocab_size 1 0"),
        ({"noise_vocab_size": 13, "vocab_size": 16}, "13 vocab_size 17 16"),
        ({"vocab_size": 4, "multi_query": False}, "1 vocab_size 5 4"),
        ({"frac_noise": 1.0, "noise_vocab_size": 4}, "frac_noise 1.0 1"),
        ({"seq_len": 4}, "seq_len 4 6"),
        ({"train_on": "keys"}, "train_on"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(InContextRecall, values, facts)


def test_an_example_in_words(snapshot: SnapshotAssertion) -> None:
    task = build(vocab_size=12, noise_vocab_size=4, frac_noise=0.3, seq_len=16)
    test, train = (sample(task, 1, split=split) for split in ("test", "train"))
    text = task.explain(test, 0)
    tokens, shown, *_ = text.split(". ")
    assert tokens == snapshot(name="tokens")
    assert shown.endswith(f" is {' '.join(map(str, test.inputs[0].tolist()))}")
    asked = re.findall(r"position (\d+)\D+(\d+)\D+(\d+)", text)
    assert [tuple(map(int, numbers)) for numbers in asked] == [
        (at, int(test.inputs[0, at]), int(test.targets[0, at]))
        for at in test.is_answer[0].nonzero().flatten().tolist()
    ]
    assert "as well" not in text
    assert task.explain(train, 0).split(". ")[-1] == snapshot(name="as well")
    assert len(task.explain(sample(build(seq_len=1024), 1), 0)) < 1500


@pytest.mark.parametrize("multi_query", [True, False])
def test_chance_is_the_commonest_value_of_the_keys_shown(multi_query: bool) -> None:
    """Over all pairs there can be, each time that a key may come back or is asked for at last."""
    right = due = 0.0
    for values in product(range(2), repeat=2):
        for keys in product(range(2), repeat=3):
            for pair in range(1 if multi_query else 3, 4):
                shown = set(keys[:pair])
                asked = 1.0 if pair == 3 else float(keys[pair] in shown)
                right += asked * max(Counter(values[key] for key in shown).values()) / len(shown)
                due += asked
    assert build(
        vocab_size=4 + (not multi_query), seq_len=8, multi_query=multi_query
    ).chance() == pytest.approx(right / due)
