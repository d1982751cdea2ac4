import random
import time
from collections.abc import Callable
from itertools import permutations, product
from math import perm
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from linbench.tasks.base import IGNORE, Batch, Split
from linbench.tasks.fuzzy_recall import FuzzyRecall, FuzzyRecallSettings, _without_replacement
from tests.helpers.fuzzy_recall import SETTINGS, build, sample
from tests.helpers.tasks import assert_refused

N = 20_000

ALPHA = 1e-3

Probability = Callable[..., float]


class Pair(NamedTuple):
    """A pair: its place, the tokens of its key and value, and earlier showings of its key.

    The key is empty for noise. Showings are their number, and the distance of the last.
    """

    begins: int
    key: tuple[int, ...]
    value: tuple[int, ...]
    seen: int = 0
    distance: int = 0


def parsed(task: FuzzyRecall, tokens: list[int], *, split: Split) -> list[Pair]:
    """Return the pairs of a whole sequence, the last answer included, and check what always holds."""
    s = task.settings
    at = next(i for i, token in enumerate(tokens) if token != s.pad_token)
    assert s.pad_token not in tokens[at:]
    found: list[Pair] = []
    shown: dict[tuple[int, ...], list[Pair]] = {}
    while at < len(tokens):
        begins = at
        if tokens[at] >= s.keys + s.values:
            copy = not s.multi_query and tokens[at] == s.vocab_size - 1
            while not copy and s.keys + s.values <= tokens[at] < s.keys + s.values + s.noise_vocab_size:
                at += 1
            found += [] if copy else [Pair(begins, (), tuple(tokens[begins:at]))]
            at += copy
            assert at > begins
            continue
        while tokens[at] < s.keys:
            at += 1
        key, begins_value = tuple(tokens[begins:at]), at
        while at < len(tokens) and s.keys <= tokens[at] < s.keys + s.values:
            at += 1
        value = tuple(tokens[begins_value:at])
        assert s.k_motif_size >= len(key) >= (1 if split == "train" else s.k_motif_size)
        assert len(set(key)) == len(key)
        assert s.v_motif_size >= len(value) == len(set(value)) >= 1
        before = shown.setdefault(key, [])
        before.append(Pair(begins, key, value, len(before), begins - before[-1].begins if before else 0))
        assert before[0].value == value, "a key keeps its value"
        found.append(before[-1])
    return found


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("values", SETTINGS.values(), ids=SETTINGS)
def test_sequences_and_labels_are_as_published(values: dict[str, Any], split: Split) -> None:
    task, count = build(**values, train_on="answers"), 100
    s = task.settings
    batch, everything = sample(task, count, split=split), sample(build(**values), count, split="train")
    assert batch.inputs.shape == (count, s.seq_len) == (count, task.seq_len)
    assert torch.equal(everything.targets[:, :-1], everything.inputs[:, 1:]), (
        "training learns every next token"
    )
    assert s.multi_query or task.answers == s.v_motif_size
    whole = torch.cat([batch.inputs, batch.targets[:, -1:]], dim=1).tolist()
    places = list(task.test_positions)
    assert batch.positions.tolist() == [places] * count
    for row, sequence in enumerate(whole):
        *others, last = parsed(task, sequence, split=split)
        assert last.begins + len(last.key + last.value) == s.seq_len + 1
        asked = [pair for pair in others if pair.seen and s.multi_query] + [last]
        expected = {
            pair.begins + len(pair.key) + i - 1: (token, pair.seen, pair.distance, i)
            for pair in asked
            for i, token in enumerate(pair.value)
        }
        labels = zip(
            *(
                x[row].tolist()
                for x in (
                    batch.targets,
                    batch.slices["seen"],
                    batch.slices["distance"],
                    batch.slices["token"],
                )
            ),
            strict=True,
        )
        found = dict(zip(places, labels, strict=True))
        assert {at: label for at, label in found.items() if label[0] != IGNORE} == expected
        assert {label[1:] for label in found.values() if label[0] == IGNORE} <= {(0, 0, 0)}


def test_ordered_draws_without_replacement() -> None:
    for size, width in ((4, 3), (5, 2), (3, 3), (6, 1)):
        draws = torch.tensor(list(product(*(range(size - i) for i in range(width)))))
        assert sorted(map(tuple, _without_replacement(draws, size).tolist())) == sorted(
            permutations(range(size), width)
        ), "each exactly once"


def firsts(task: FuzzyRecall, split: Split, count: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The first pair of every sequence: key and value."""
    batch = sample(task, count, split=split)
    firsts = []
    for row in batch.inputs.tolist():
        at = next(i for i, token in enumerate(row) if token != task.settings.pad_token)
        key = at
        while row[key] < task.settings.keys:
            key += 1
        end = key
        while task.settings.keys <= row[end] < task.settings.keys + task.settings.values:
            end += 1
        firsts.append((tuple(row[at:key]), tuple(row[key:end])))
    return firsts


def test_groups_of_tokens_are_uniform(chi_squared: Probability) -> None:
    # 4 tokens for keys, 4 for values
    task, count = build(vocab_size=9, k_motif_size=2, v_motif_size=2, seq_len=16), 10_000
    singles, doubles = [(i,) for i in range(4)], list(permutations(range(4), 2))
    for split, keys in (("train", [*singles, *doubles]), ("test", doubles)):
        drawn = firsts(task, split, count)  # type: ignore[arg-type]
        as_many = {(1, split): 4, (2, split): 12}
        sizes = 2 if split == "train" else 1
        expected = torch.tensor([count / sizes / as_many[len(key), split] for key in keys])
        assert chi_squared(torch.tensor([sum(key == k for k, _ in drawn) for key in keys]), expected) > ALPHA
        values = [tuple(token + 4 for token in value) for value in (*singles, *doubles)]
        expected = torch.tensor([count / 2 / as_many[len(value), split] for value in values])
        assert (
            chi_squared(torch.tensor([sum(value == v for _, v in drawn) for value in values]), expected)
            > ALPHA
        )


def test_two_keys_have_values_of_their_own(chi_squared: Probability) -> None:
    """Keys and values have one token each, and pairs stand at even places."""
    task = build(vocab_size=7, k_motif_size=1, v_motif_size=1, seq_len=21)
    batch = sample(task, N)
    begin = (batch.inputs == 6).sum(dim=1, keepdim=True)
    first, second = (batch.inputs.gather(1, begin + i + torch.arange(2)) for i in (0, 2))
    other = first[:, 0] != second[:, 0]
    counts = ((first[:, 1] - 3) * 3 + second[:, 1] - 3)[other].bincount(minlength=9)
    assert chi_squared(counts, torch.full((9,), int(other.sum()) / 9)) > ALPHA


def test_noise_takes_its_share_and_is_uniform(chi_squared: Probability) -> None:
    task = build(
        vocab_size=13, noise_vocab_size=4, frac_noise=0.3, k_motif_size=1, v_motif_size=1, seq_len=22
    )
    batch = sample(task, N)
    begin = (batch.inputs == 12).sum(dim=1, keepdim=True)
    first, second = batch.inputs.gather(1, begin + torch.arange(2)).T
    noise = first >= 8
    # the asked pair stands first when it is put there, which it is for one of the 18 places that it may be
    # wanted at
    share = 0.3 * (1 - 1 / 18)
    assert (
        chi_squared(
            torch.tensor([int(noise.sum()), int((~noise).sum())]),
            N * torch.tensor([share, 1 - share], dtype=torch.float64),
        )
        > ALPHA
    )
    counts = ((first - 8) * 4 + second - 8)[noise].bincount(minlength=16)
    assert chi_squared(counts, torch.full((16,), int(noise.sum()) / 16)) > ALPHA


def published(s: FuzzyRecallSettings, draw: random.Random, *, split: Split) -> tuple[int, int, int, int]:
    """The published generator, token by token: how many tokens are asked for, how often the last key was
    shown before, pairs but noise, filler."""

    def group(tokens: range, size: int) -> tuple[int, ...]:
        return tuple(draw.sample(tokens, size))

    def sizes() -> tuple[int, int]:
        return draw.randint(1, s.k_motif_size) if split == "train" else s.k_motif_size, draw.randint(
            1, s.v_motif_size
        )

    keys, values = range(s.keys), range(s.keys, s.keys + s.values)
    size, value_size = sizes()
    key, value = group(keys, size), group(values, value_size)
    length, asked = 0, len(value)
    wanted = draw.randrange(s.seq_len - 2 * (size + value_size))
    shown: dict[tuple[int, ...], tuple[int, ...]] = {}
    times = pairs = 0
    while length < s.seq_len - (size + value_size) - s.longest:
        its_size, its_value_size = sizes()
        if length >= wanted and not times:
            its_key, its_value = key, value
        elif draw.random() < s.frac_noise:
            length += its_size + its_value_size
            continue
        else:
            its_key = group(keys, its_size)
            its_value = value if its_key == key else shown.get(its_key) or group(values, its_value_size)
            asked += len(its_value) if s.multi_query and its_key in shown else 0
        pairs += 1
        times += its_key == key
        shown[its_key] = its_value
        length += len(its_key + its_value)
    return asked, times, pairs, s.seq_len + 1 - length - (not s.multi_query) - size - value_size


def statistics(task: FuzzyRecall, batch: Batch, split: Split) -> Tensor:
    """[B, 4], what `published` counts."""
    s = task.settings
    rows = []
    for tokens, last in zip(batch.inputs.tolist(), batch.targets[:, -1:].tolist(), strict=True):
        *others, final = parsed(task, tokens + last, split=split)
        asked = sum(len(pair.value) for pair in others if pair.seen and s.multi_query) + len(final.value)
        rows.append((asked, final.seen, sum(bool(pair.key) for pair in others), tokens.count(s.pad_token)))
    return torch.tensor(rows)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2000, pytest.param(N, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"multi_query": False, "vocab_size": 24, "noise_vocab_size": 6, "frac_noise": 0.4, "seq_len": 64},
        {"vocab_size": 10, "k_motif_size": 2, "seq_len": 40},
    ],
)
def test_sequences_are_those_of_the_published_generator(
    chi_squared: Probability, values: dict[str, Any], split: Split, rows: int
) -> None:
    """Everything that can be counted in a sequence has the same distribution."""
    task, draw = build(**values, train_on="answers"), random.Random(0)
    theirs = torch.tensor([published(task.settings, draw, split=split) for _ in range(rows)])
    ours = statistics(task, sample(task, rows, split=split), split)
    for a, b in zip(ours.T, theirs.T, strict=True):
        size = int(max(a.max(), b.max())) + 1
        counts = torch.stack([a.bincount(minlength=size), b.bincount(minlength=size)])
        often = counts.sum(dim=0) >= 50
        counts = torch.cat([counts[:, often], counts[:, ~often].sum(dim=1, keepdim=True)], dim=1)
        counts = counts[:, counts.sum(dim=0) >= 10]
        if counts.shape[1] > 1:  # two samples of one size: each count is as large in both, in expectation
            assert (
                chi_squared(counts, counts.double().mean(dim=0).expand(2, -1), degrees=counts.shape[1] - 1)
                > ALPHA
            )


def test_the_baseline_is_as_the_published_one() -> None:
    batch = sample(build(), 5000)
    assert float(batch.is_answer.sum(dim=1).double().mean()) == pytest.approx(4.38, abs=0.13)
    never = ((batch.slices["seen"] == 0) & batch.is_answer).any(dim=1)
    assert float(never.double().mean()) == pytest.approx(0.024, abs=0.0085)
    filler = (batch.inputs == 15).sum(dim=1)
    assert (int(filler.min()), int(filler.max())) == (2, 7)


def test_most_tokens_cost_no_more_than_few() -> None:
    task = build(vocab_size=128)
    sample(task, 256)
    began = time.perf_counter()
    sample(task, 256)
    assert (time.perf_counter() - began) / 256 < 2.2 / 1000, (
        "a thousandth of what listing all groups of tokens takes"
    )


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"k_motif_size": 8}, "7 8 k_motif_size v_motif_size 3 vocab_size"),
        ({"v_motif_size": 9}, "7 8 k_motif_size 3 v_motif_size 9 vocab_size"),
        ({"seq_len": 12}, "6 seq_len 13 12"),
        ({"vocab_size": 128, "k_motif_size": 11}, "11 63 1 k_motif_size 2"),
        ({"frac_noise": 0.2}, "frac_noise 0.2 noise_vocab_size 1 0"),
        ({"vocab_size": 4}, "1 vocab_size 5 4"),
        ({"k_motif_size": 0}, "k_motif_size 0 1"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(FuzzyRecall, values, facts)


def test_keys_are_told_apart_by_their_names() -> None:
    task = build(vocab_size=11)  # 5 tokens for keys
    draws = torch.tensor([list(x) for x in product(range(5), range(4), range(3))])
    names = torch.cat([task._names(draws[None], torch.full((1, 60), size)).unique() for size in (1, 2, 3)])
    assert len(names.unique()) == len(names) == sum(perm(5, size) for size in (1, 2, 3))


def test_an_example_in_words() -> None:
    task = build(seq_len=40, vocab_size=9, k_motif_size=1)
    batch = sample(task, 1)
    text = task.explain(batch, 0)
    assert " ".join(map(str, batch.inputs[0].tolist())) in text
    assert "the answer there is" in text
    for which in ({"seq_len": 1024}, {"vocab_size": 128}):
        assert len(build(**which).explain(sample(build(**which), 1), 0)) < 1500
