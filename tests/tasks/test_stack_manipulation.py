from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch
from linbench.tasks.stack_manipulation import StackManipulation
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

N = 20_000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    **{name: dict(preset.task) for name, preset in StackManipulation.presets.items()},
    "one length": {"length": 12, "shortest": 12},
    "one token": {"length": 1, "shortest": 1},
    "one or two": {"length": 2, "shortest": 1},
}
Probability = Callable[..., float]


build = partial(build_task, StackManipulation)


def played(tokens: list[int]) -> list[int]:
    """The stack, top first."""
    stack: list[int] = []
    for token in tokens:
        if token == 4:
            stack = stack[:-1]
        else:
            stack.append(token if token in (2, 3) else token - 3)
    return stack[::-1]


task = task_fixture(StackManipulation, SETTINGS)


def test_structure(task: StackManipulation) -> None:
    s = task.settings
    batch = sample(task, 100)
    assert batch.inputs.shape == (100, 2 * s.length + 1)
    for row in range(100):
        tokens = batch.inputs[row].tolist()
        n = tokens.index(1)
        assert s.shortest <= n <= s.length
        assert tokens[n:] == [1] * (n + 1) + [0] * (2 * (s.length - n))
        bits = sum(token in (2, 3) for token in tokens)
        assert all(token in (2, 3) for token in tokens[:bits])
        assert all(token in (4, 5, 6) for token in tokens[bits:n])
        assert 1 <= bits <= max(1, n - 1)
        told = [*played(tokens[:n]), 7]
        unused = s.length + 1 - len(told)
        assert batch.targets[row].tolist() == told + [IGNORE] * unused
        assert batch.positions[row].tolist() == [*range(n, n + len(told)), *[0] * unused]
        assert batch.slices["place"][row].tolist() == [*range(len(told)), *[0] * unused]
        assert batch.slices["length"][row].tolist() == [n] * len(told) + [0] * unused
    assert torch.equal(task.solve(batch)[batch.is_answer], batch.targets[batch.is_answer])


@pytest.mark.parametrize(
    ("read", "told"),
    [
        ([2, 3, 3, 4], [3, 2, 7]),  # 0 1 1 pop
        ([3, 4, 4, 5], [2, 7]),  # 1 pop pop push 0: a pop too many does nothing
        ([2, 4, 4, 4], [7]),
        ([2, 3, 6, 5], [2, 3, 3, 2, 7]),
    ],
)
def test_hand_made_sequences(read: list[int], told: list[int]) -> None:
    inputs = torch.tensor([[*read, *[1] * 5]])
    positions = torch.arange(4, 4 + len(told))[None]
    batch = Batch(inputs, positions, torch.zeros_like(positions), {})
    assert build(length=4, shortest=4).solve(batch).tolist() == [told]


def test_lengths_initial_stacks_bits_and_actions_are_even(chi_squared: Probability) -> None:
    batch = sample(build(length=8, shortest=5), N)
    length = batch.slices["length"][:, 0]
    assert chi_squared(length.bincount(minlength=9)[5:], torch.full((4,), N / 4)) > ALPHA
    bits = ((batch.inputs == 2) | (batch.inputs == 3)).sum(dim=1)
    for n in (5, 8):
        of_these = bits[length == n]
        assert (
            chi_squared(of_these.bincount(minlength=n)[1:], torch.full((n - 1,), len(of_these) / (n - 1)))
            > ALPHA
        )
    assert chi_squared(batch.inputs[:, 0].bincount(minlength=4)[2:], torch.full((2,), N / 2)) > ALPHA
    action = batch.inputs[:, 4][bits < 5]
    action = action[action >= 4]
    assert chi_squared(action.bincount(minlength=7)[4:], torch.full((3,), len(action) / 3)) > ALPHA


def test_chance_by_hand() -> None:
    """One bit, then a pop in a third of the cases and a push in the others: the end, or two bits and the
    end."""
    assert build(length=2, shortest=2).chance() == pytest.approx((1 / 3 + 2 / 3 / 2 + 2 / 3) / (7 / 3))
    assert build(length=1, shortest=1).chance() == pytest.approx((1 / 2 + 1) / 2)


def test_no_test_example_of_the_first_preset_is_seen_in_training() -> None:
    task = build()
    seen = {bytes(row) for row in sample(task, 40_000).inputs.to(torch.uint8).numpy()}
    again = sum(bytes(row) in seen for row in sample(task, 2000, split="test").inputs.to(torch.uint8).numpy())
    assert again == 0


def test_splits_share_the_shortest_inputs_alone() -> None:
    """Up to two bits and actions, or two bits and an action."""
    task = build(length=9, shortest=1)
    trained, tested = (
        task.sample(torch.arange(count), seed=0, split=split)
        for count, split in ((30_000, "train"), (3000, "test"))
    )  # type: ignore[arg-type]
    known = set(map(tuple, trained.inputs.tolist()))
    shared = torch.tensor([row in known for row in map(tuple, tested.inputs.tolist())])
    length, bits = tested.slices["length"][:, 0], ((tested.inputs == 2) | (tested.inputs == 3)).sum(dim=1)
    few = 2**bits * 3 ** (length - bits) < 16
    assert shared[few].all()
    assert not shared[~few].any()
    assert set(length[few].tolist()) == {1, 2, 3}


def test_tokens_and_lengths() -> None:
    task = build(length=16, shortest=4)
    assert task.io == IO(8, 8)
    assert (task.seq_len, task.answers) == (33, 17)
    assert task.longer(3) == {"length": 48}


def test_a_shortest_above_the_longest_is_refused() -> None:
    assert_refused(StackManipulation, {"length": 12, "shortest": 13}, "shortest length 13 12")


def test_explain_tells_the_stack(task: StackManipulation) -> None:
    batch = sample(task, 3)
    for row in range(3):
        text = task.explain(batch, row)
        tokens = batch.inputs[row].tolist()
        n = tokens.index(1)
        stack = played(tokens[:n])
        assert f"At positions {n} to {n + len(stack)} stands token 1" in text
        assert (", ".join(str(bit - 2) for bit in stack) or "nothing") in text
        assert len(text) < 1500
