from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch
from linbench.tasks.stack import Stack
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

N = 10_000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "quick": {},
    "kimi-512": dict(Stack.presets["kimi-512"].task),
    "two stacks": {"stacks": 2, "seq_len": 60},
    "never more than one": {"depth": 1},
    "low": {"depth": 2, "stacks": 2},
    "covered": {"covered": True, "stacks": 4},
    "tokens over": {"seq_len": 50, "stacks": 3},
    "smallest": {"seq_len": 12, "stacks": 2, "elements": 2, "depth": 1},
}
Probability = Callable[..., float]


build = partial(build_task, Stack)


task = task_fixture(Stack, SETTINGS)


def test_structure(task: Stack) -> None:
    """Played through with lists."""
    s = task.settings
    batch = sample(task, 30, "test")
    start = s.seq_len % 3
    for row in range(30):
        tokens = batch.inputs[row].tolist()
        stacks: dict[int, list[tuple[int, int]]] = {stack: [] for stack in range(3, 3 + s.stacks)}
        popped_last: dict[int, bool] = {}
        due = []
        assert tokens[:start] == [0] * start
        for at in range(start, s.seq_len, 3):
            what, stack, element = tokens[at : at + 3]
            here = stacks[stack]
            if what == 1:
                assert 3 + s.stacks <= element < 3 + s.stacks + s.elements
                here.append((element, at + 2))
                assert len(here) <= s.depth
            else:
                assert (what, element) == (2, 0)
                opened = sum(map(bool, stacks.values()))
                depth = len(here)
                element, since = here.pop()
                if popped_last[stack] or not s.covered:
                    due.append((at + 1, element, depth, at + 1 - since, opened))
            popped_last[stack] = what == 2
        parts = (
            batch.positions,
            batch.targets,
            *(batch.slices[name] for name in ("depth", "distance", "open")),
        )
        found = list(zip(*(x[row].tolist() for x in parts), strict=True))
        assert found == due + [(0, IGNORE, 0, 0, 0)] * (task.answers - len(due))
    assert torch.equal(task.solve(batch)[batch.is_answer], batch.targets[batch.is_answer])
    assert task.io == IO(3 + s.stacks + s.elements, 3 + s.stacks + s.elements)


def test_a_hand_made_sequence() -> None:
    """push 7 on 3, push 8 on 3, push 9 on 4, pop 3, pop 4, push 7 on 3, pop 3, pop 3."""
    task = build(seq_len=24, stacks=2, elements=8)
    inputs = torch.tensor([[1, 3, 7, 1, 3, 8, 1, 4, 9, 2, 3, 0, 2, 4, 0, 1, 3, 7, 2, 3, 0, 2, 3, 0]])
    batch = Batch(inputs, torch.tensor([[10, 13, 19, 22]]), torch.zeros(1, 4, dtype=torch.int64), {})
    assert task.solve(batch).tolist() == [[8, 9, 7, 7]]


def operations(task: Stack, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[B, operations]: 1 for a push and 0 for a pop, stacks and elements from 0, -1 where there is none."""
    what, stack, element = batch.inputs[:, task.seq_len % 3 :].view(len(batch.inputs), -1, 3).unbind(dim=2)
    return 2 - what, stack - 3, element - 3 - task.settings.stacks


def test_stacks_and_elements_are_even(chi_squared: Probability) -> None:
    task = build(stacks=4, elements=5, seq_len=30)
    push, stack, element = operations(task, sample(task, N))
    for time in (0, 3, 9):
        assert chi_squared(stack[:, time].bincount(minlength=4), torch.full((4,), N / 4)) > ALPHA
        pushed = element[:, time][push[:, time] == 1]
        assert chi_squared(pushed.bincount(minlength=5), torch.full((5,), len(pushed) / 5)) > ALPHA


def test_heights_are_a_walk_between_walls(chi_squared: Probability) -> None:
    """At each height, up and down are as likely whatever came before, except at the walls."""
    task = build(stacks=2, depth=3, seq_len=36)
    push, stack, _ = operations(task, sample(task, N))
    height = torch.zeros(N, 2, dtype=torch.int64)
    last = torch.ones(N, 2, dtype=torch.int64)
    ups = torch.zeros(4, 2, 2)
    for time in range(12):
        at = stack[:, time : time + 1]
        of_this, before = height.gather(1, at)[:, 0], last.gather(1, at)[:, 0]
        ups.index_put_((of_this, before, push[:, time]), torch.ones(N), accumulate=True)
        height = height.scatter_add(1, at, 2 * push[:, time : time + 1] - 1)
        last = last.scatter(1, at, push[:, time : time + 1])
    assert height.min() >= 0
    assert ups[0, :, 0].sum() == ups[3, :, 1].sum() == 0
    for of_this in (1, 2):
        for before in (0, 1):
            counts = ups[of_this, before]
            if counts.sum():
                assert chi_squared(counts, counts.sum().expand(2) / 2) > ALPHA


def test_stacks_do_not_share_their_walks(chi_squared: Probability) -> None:
    """Second operations on two stacks, after a push each: both pushes, both pops, and one of each are as
    likely."""
    task = build(stacks=2, seq_len=30)
    push, stack, _ = operations(task, sample(task, N))
    second = [((stack == k).cumsum(dim=1) == 2) & (stack == k) for k in (0, 1)]
    both = second[0].any(dim=1) & second[1].any(dim=1)
    a, b = ((push * here).sum(dim=1)[both] for here in second)
    assert chi_squared((2 * a + b).bincount(minlength=4), both.sum().expand(4) / 4) > ALPHA


def test_longer_sequences_have_more_operations() -> None:
    task = build(**build().longer(2))
    assert task.seq_len == 192
    assert task.answers == 32


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"stacks": 33}, "33 stacks 32 seq_len 96"),
        ({"stacks": 1}, "stacks 1 2"),
        ({"depth": 0}, "depth 0 1"),
        ({"depth": 1, "covered": True}, "depth 2 1"),
        ({"stacks": 9, "covered": True}, "9 36 32 seq_len 96"),
        ({"elements": 1}, "elements 1 2"),
        ({"seq_len": 9}, "seq_len 9 12"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Stack, values, facts)


def test_explain_tells_operations_and_answers(task: Stack) -> None:
    batch = sample(task, 4, "test")
    for row in range(4):
        text = task.explain(batch, row)
        at, target = int(batch.positions[row, 0]), int(batch.targets[row, 0])
        if 0 < at < 96:
            due = batch.positions[row][batch.is_answer[row]]
            assert text.count("the answer is") == int((due < task.seq_len % 3 + 96).sum())
            assert f"pop {int(batch.inputs[row, at])}, at position {at} the answer is {target}" in text
        start = task.seq_len % 3
        assert f"push {int(batch.inputs[row, start + 2])} on {int(batch.inputs[row, start + 1])}" in text
        assert len(text) < 1500


def test_training_has_labels_where_tests_do_not_ask() -> None:
    task = build(covered=True)
    assert torch.equal(sample(task, 8).targets, sample(build(), 8).targets)
    assert sample(task, 8, "test").is_answer.sum() < sample(build(), 8, "test").is_answer.sum()
