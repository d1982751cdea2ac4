from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Prediction
from linbench.tasks.blocks.groups import group
from linbench.tasks.group_word import GroupWord
from tests.helpers.tasks import assert_refused, build_task, sample

ALPHA = 1e-3


build = partial(build_task, GroupWord)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"group": "A5", "min_length": 3, "max_length": 9, "bos": True},
        {"group": "S5", "moves": 2},
        {"group": "D5", "min_length": 1, "max_length": 5},
    ],
)
def test_targets_are_products_from_the_right_of_all_so_far(values: dict[str, Any]) -> None:
    task = build(**values)
    s, elements = task.settings, group(task.settings.group).elements
    batch = sample(task, 60)
    lengths = set()
    for tokens, positions, targets, slices in zip(
        *(x.tolist() for x in (*batch[:3], batch.slices["position"])), strict=True
    ):
        word = [token for token in tokens if token < len(elements)]
        lengths.add(len(word))
        assert tokens == [len(elements) + 1] * s.bos + word + [len(elements)] * (s.max_length - len(word))
        state, expected = elements[0], []
        for letter in word:
            state = tuple(state[image] for image in elements[letter])
            expected.append(elements.index(state))
        unused = s.max_length - len(word)
        assert targets == expected + [IGNORE] * unused
        assert positions == [i + s.bos for i in range(len(word))] + [0] * unused
        assert slices == [*range(1, len(word) + 1), *[0] * unused]
    assert (min(lengths), max(lengths)) == (s.min_length, s.max_length)
    assert task.io == IO(len(elements) + 1 + s.bos, len(elements) + 1 + s.bos)


def test_a_word_by_hand() -> None:
    """Here element 1 of S3 swaps points 1 and 2, and element 2 swaps points 0 and 1.

    One after the other, from the right, they send 0 to 2, 1 to 0 and 2 to 1.
    """
    task = build(min_length=3, max_length=3)
    assert group("S3").elements[4] == (2, 0, 1)
    batch = sample(task, 1)._replace(inputs=torch.tensor([[1, 2, 2]]))
    assert task.solve(batch).tolist() == [[1, 4, 1]]


def test_letters_and_products_are_uniform(chi_squared: Callable[..., float]) -> None:
    batch = sample(build(group="S3", min_length=12, max_length=12), 6000)
    for tokens in (batch.inputs[:, 0], batch.inputs[:, 11], batch.targets[:, 11]):
        assert chi_squared(tokens.bincount(minlength=6), torch.full((6,), 1000)) > ALPHA


def test_only_letters_that_move_few_points(chi_squared: Callable[..., float]) -> None:
    task = build(group="S5", moves=2, min_length=30, max_length=30)
    batch = sample(task, 5500)
    letters = torch.tensor(group("S5").moving(2))
    assert set(batch.inputs.flatten().tolist()) == set(letters.tolist())
    assert chi_squared(batch.inputs[:, 20].bincount(minlength=120)[letters], torch.full((11,), 500)) > ALPHA
    assert len(set(batch.targets[:, 29].tolist())) == 120


@pytest.mark.parametrize("values", [{}, {"bos": True, "tokens_per_element": 2}])
def test_half_of_the_words_are_the_identity_when_that_is_asked(
    chi_squared: Callable[..., float], values: dict[str, Any]
) -> None:
    task = build(group="S3", answer="identity", min_length=2, max_length=5, **values)
    batch = sample(task, 4000)
    first, step = int(task.settings.bos), task.settings.tokens_per_element
    for tokens, (position,), (target,), (length,) in zip(
        *(x[:50].tolist() for x in (*batch[:3], batch.slices["position"])), strict=True
    ):
        word = [token for token in tokens[first::step] if token < 6]
        state = (0, 1, 2)
        for letter in word:
            state = tuple(state[image] for image in group("S3").elements[letter])
        assert (target == 0) == (state == (0, 1, 2))
        assert (length, position) == (len(word), first + step * len(word) - 1)
    assert torch.equal(task.solve(batch), batch.targets)
    assert chi_squared(batch.targets.flatten().bincount(minlength=2), torch.full((2,), 2000)) > ALPHA
    # all letters but one are uniform whatever the answer is, so that who misses one knows nothing
    for answer in (0, 1):
        words = batch.inputs[(batch.slices["position"] == 3)[:, 0] & (batch.targets[:, 0] == answer)][
            :, first::step
        ]
        for a, b in ((0, 1), (1, 2), (0, 2)):
            assert (
                chi_squared(
                    (6 * words[:, a] + words[:, b]).bincount(minlength=36), torch.full((36,), len(words) / 36)
                )
                > ALPHA
            )


def test_no_split_asks_whether_the_same_words_are_the_identity() -> None:
    task = build(group="S4", answer="identity", min_length=3, max_length=5)
    trained = set(map(tuple, sample(task, 20_000).inputs.tolist()))
    assert not trained & set(map(tuple, sample(task, 4000, "test").inputs.tolist()))


@pytest.mark.parametrize("bos", [False, True])
def test_an_element_may_take_several_tokens(bos: bool) -> None:
    one, more = build(bos=bos), build(bos=bos, tokens_per_element=3)
    repeated = build(bos=bos, tokens_per_element=3, spread="repeat")
    batch, spread, same = sample(one, 20), sample(more, 20), sample(repeated, 20)
    first = int(bos)
    assert more.seq_len == first + 3 * 24
    assert torch.equal(spread.inputs[:, first::3], batch.inputs[:, first:])
    assert (spread.inputs[:, first + 1 :: 3] == 6).all()
    assert (spread.inputs[:, first + 2 :: 3] == 6).all()
    assert all(torch.equal(same.inputs[:, first + i :: 3], batch.inputs[:, first:]) for i in range(3))
    for found in (spread, same):
        assert torch.equal(found.targets, batch.targets)
        assert torch.equal(
            found.positions[batch.is_answer], 3 * (batch.positions[batch.is_answer] - first) + 2 + first
        )


def test_chance_is_naming_the_likeliest_product() -> None:
    assert build(group="A5").chance() == pytest.approx(1 / 60)
    assert build(group="S5", min_length=40, max_length=40).chance() == pytest.approx(1 / 120)
    # after one letter each of eleven, after two the identity: 11 of 121 words
    assert build(group="S5", moves=2, min_length=2, max_length=2).chance() == pytest.approx(1 / 11)
    # after three the likeliest is a swap: 46 of 1331 words, in half of the examples
    counts = torch.zeros(120)
    elements, swaps = group("S5").elements, group("S5").moving(2)
    for a in swaps:
        for b in swaps:
            for c in swaps:
                x, y, z = elements[a], elements[b], elements[c]
                counts[elements.index(tuple(x[y[z[i]]] for i in range(5)))] += 1
    third = float(counts.max()) / 11**3
    assert build(group="S5", moves=2, min_length=2, max_length=3).chance() == pytest.approx(
        (2 / 11 + third / 2) / 2.5
    )


def test_the_quick_presets_test_nothing_that_was_trained_on() -> None:
    task = build(**GroupWord.presets["quick"].task)
    trained = set(map(tuple, sample(task, 20_000).inputs.tolist()))
    assert not trained & set(map(tuple, sample(task, 2000, "test").inputs.tolist()))
    assert not trained & set(map(tuple, sample(task, 2000, "validation").inputs.tolist()))


def test_scores_tell_how_many_sequences_are_right_so_far() -> None:
    task = build(min_length=4, max_length=4)
    batch = sample(task, 2)
    wrong = torch.tensor([[0, 1, 0, 0], [0, 0, 0, 1]], dtype=torch.bool)
    found = task.score(batch, Prediction(torch.where(wrong, 6, batch.targets), torch.zeros(2, 4)))
    assert found["sequence/position"][0].tolist() == [0, 2, 1, 1, 0]
    assert found["accuracy/position"][0].tolist() == [0, 2, 1, 2, 1]
    assert [float(x) for x in found["sequence"]] == [4, 8]


def test_longer_words_are_longer_at_both_ends() -> None:
    assert build(min_length=3, max_length=32).longer(4) == {"min_length": 12, "max_length": 128}


def test_explain_says_what_is_due(snapshot: SnapshotAssertion) -> None:
    task = build(min_length=3, max_length=3, tokens_per_element=2, bos=True)
    batch = sample(task, 1)._replace(
        inputs=torch.tensor([[7, 1, 6, 2, 6, 2, 6]]), targets=torch.tensor([[1, 4, 1]])
    )
    assert task.explain(batch, 0) == snapshot(name="products")
    asked = build(min_length=3, max_length=3, answer="identity")
    batch = sample(asked, 1)._replace(inputs=torch.tensor([[1, 2, 2]]), targets=torch.tensor([[1]]))
    assert asked.explain(batch, 0) == snapshot(name="identity")
    long = build(group="A5", min_length=300, max_length=300)
    assert len(long.explain(sample(long, 1), 0)) < 1500


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"group": "S7"}, "120"),
        ({"group": "A5", "moves": 2}, "moves 2"),
        ({"moves": 1}, "moves 1 2"),
        ({"min_length": 30}, "min_length max_length 30 24"),
        ({"tokens_per_element": 0}, "tokens_per_element 0 1"),
        ({"answer": "identity", "group": "S5", "moves": 2}, "answer min_length 2 moves"),
        ({"spread": "zero"}, "spread"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(GroupWord, values, facts)
