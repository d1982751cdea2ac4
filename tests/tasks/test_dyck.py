from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch
from linbench.tasks.dyck import Dyck
from tests.helpers.tasks import assert_refused, build_task, sample

ALPHA = 1e-3


build = partial(build_task, Dyck)


def depths(task: Dyck, batch: Batch) -> Tensor:
    """[B, T] brackets open after every token."""
    kinds = task.settings.kinds
    opens, closes = batch.inputs < kinds, (batch.inputs >= kinds) & (batch.inputs < 2 * kinds)
    return (opens.long() - closes.long()).cumsum(dim=1)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"kinds": 3, "max_depth": 5, "min_length": 2, "max_length": 30},
        {"max_depth": 1, "min_length": 6, "max_length": 8},
        {"max_depth": 40},
        {"kinds": 3, "min_length": 16, "covered": True},
    ],
)
def test_brackets_match_and_every_closing_one_is_due(values: dict[str, Any]) -> None:
    task = build(**values)
    s = task.settings
    batch = sample(task, 80, "test")
    lengths, deepest = set(), 0
    assert task.io == IO(2 * s.kinds + 2, 2 * s.kinds + 2)
    columns = (batch.inputs, batch.positions, batch.targets, batch.slices["depth"], batch.slices["distance"])
    for tokens, *places in zip(*(x.tolist() for x in columns), strict=True):
        assert tokens[0] == 2 * s.kinds
        word = [token for token in tokens[1:] if token < 2 * s.kinds]
        assert tokens[1 + len(word) :] == [2 * s.kinds + 1] * (s.max_length - len(word))
        lengths.add(len(word))
        stack: list[tuple[int, int]] = []
        expected = []
        for at, token in enumerate(word):
            if token < s.kinds:
                stack.append((at, token))
                deepest = max(deepest, len(stack))
            else:
                opened, kind = stack.pop()
                assert token == s.kinds + kind
                # token `at` of the word is token at + 1 of the inputs
                if not s.covered or word[at - 1] >= s.kinds:
                    expected.append((at, token, len(stack) + 1, at - opened))
        assert not stack
        unused = task.answers - len(expected)
        assert sorted(zip(*places, strict=True)) == sorted([*expected, *[(0, IGNORE, 0, 0)] * unused])
    assert min(s.max_depth, 6) <= deepest <= s.max_depth
    assert (min(lengths), max(lengths)) == (s.min_length, s.max_length)


def test_the_walk_is_fair_between_its_walls(chi_squared: Callable[..., float]) -> None:
    task = build(max_depth=3, min_length=20, max_length=20)
    depth = depths(task, sample(task, 8000))
    for at in range(1, 16):  # sixteen brackets or fewer left are more than could be open
        before, up = depth[:, at], depth[:, at + 1] > depth[:, at]
        assert up[before == 0].all()
        assert not up[before == 3].any()
        between = (before == 1) | (before == 2)
        if between.any():
            assert (
                chi_squared(
                    up[between].long().bincount(minlength=2), torch.full((2,), int(between.sum()) / 2)
                )
                > ALPHA / 15
            )
    assert not depth[:, 20].any()


def test_at_the_end_only_closing_is_left_once_it_is_due(chi_squared: Callable[..., float]) -> None:
    task = build(max_depth=10, min_length=12, max_length=12)
    depth = depths(task, sample(task, 8000))
    forced = depth == 12 - torch.arange(13)
    for at in range(6, 12):
        assert (depth[forced[:, at], at + 1] == depth[forced[:, at], at] - 1).all()
    free = (depth[:, 8] == 2) & ~forced[:, 8]
    assert (
        chi_squared((depth[free, 9] > 2).long().bincount(minlength=2), torch.full((2,), int(free.sum()) / 2))
        > ALPHA
    )


def test_kinds_and_lengths_are_uniform(chi_squared: Callable[..., float]) -> None:
    task = build(kinds=8, min_length=10, max_length=18)
    batch = sample(task, 8000)
    assert chi_squared(batch.inputs[:, 1].bincount(minlength=8), torch.full((8,), 1000)) > ALPHA
    second = batch.inputs[:, 2]
    assert (
        chi_squared(second[second < 8].bincount(minlength=8), torch.full((8,), int((second < 8).sum()) / 8))
        > ALPHA
    )
    lengths = (batch.inputs < 16).sum(dim=1)
    assert chi_squared(lengths.bincount(minlength=19)[10::2], torch.full((5,), 1600)) > ALPHA


@pytest.mark.slow
@pytest.mark.parametrize(("which", "shared"), [("quick", 0), ("hewitt-2-3", 6), ("hewitt-8-3", 2)])
def test_splits_share_the_shortest_words_alone(which: str, shared: int) -> None:
    """Up to three pairs of two kinds, or one of eight: fewer than 16 words of a shape."""
    task = build(**Dyck.presets[which].task)
    trained = set(map(tuple, sample(task, 20_000).inputs.tolist()))
    tested = sample(task, 4000, "test")
    known, lengths = (
        torch.tensor([row in trained for row in map(tuple, tested.inputs.tolist())]),
        2 * tested.is_answer.sum(dim=1),
    )
    assert known[lengths <= shared].all()
    assert not known[lengths > shared].any()


def test_longer_words_are_longer_at_both_ends() -> None:
    assert build().longer(2) == {"min_length": 64, "max_length": 128}


def test_explain_says_what_is_due(snapshot: SnapshotAssertion) -> None:
    task = build(min_length=4, max_length=4)
    batch = sample(task, 1)._replace(
        inputs=torch.tensor([[4, 0, 1, 3, 2]]),
        positions=torch.tensor([[4 - 1, 2]]),
        targets=torch.tensor([[2, 3]]),
    )
    assert task.explain(batch, 0) == snapshot
    many = build(kinds=9, min_length=600, max_length=600)
    assert len(many.explain(sample(many, 1), 0)) < 1500


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"min_length": 31}, "min_length 31 32"),
        ({"max_length": 65}, "max_length 65 66"),
        ({"min_length": 80}, "min_length max_length 80 64"),
        ({"kinds": 1}, "kinds 1 2"),
        ({"covered": True, "max_depth": 1}, "max_depth min_length 2 16 1 32"),
        ({"covered": True, "min_length": 14}, "max_depth min_length 2 16 3 14"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Dyck, values, facts)


def test_training_has_labels_where_tests_do_not_ask() -> None:
    task = build(covered=True)
    assert torch.equal(sample(task, 8).targets, sample(build(), 8).targets)
    assert sample(task, 8, "test").is_answer.sum() < sample(build(), 8, "test").is_answer.sum()
