from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE
from linbench.tasks.flip_flop import READ, SKIP, WRITE, FlipFlop
from tests.helpers.tasks import assert_refused, build_task, sample

ALPHA = 1e-3


build = partial(build_task, FlipFlop)


@pytest.mark.parametrize("ignore", [0.0, 0.1, 0.8, 1.0])
def test_every_read_is_due_and_shows_the_bit_last_written(ignore: float) -> None:
    task = build(seq_len=24, ignore=ignore)
    batch = sample(task, 150)
    assert (task.io, task.answers, task.chance()) == (IO(5, 5), 11, 0.5)
    columns = (batch.inputs, batch.positions, batch.targets, batch.slices["distance"], batch.slices["writes"])
    for tokens, positions, targets, distances, writes in zip(*(x.tolist() for x in columns), strict=True):
        assert tokens[0] == WRITE
        assert tokens[-2] == READ
        bit = at = written = 0
        for place in range(12):
            instruction, given = tokens[2 * place : 2 * place + 2]
            assert instruction in (WRITE, READ, SKIP)
            assert given in (0, 1)
            if instruction == WRITE:
                bit, at, written = given, 2 * place + 1, written + 1
            if place == 0:
                continue
            if instruction == READ:
                assert given == bit
                assert (positions[place - 1], targets[place - 1]) == (2 * place, bit)
                assert (distances[place - 1], writes[place - 1]) == (2 * place - at, written)
            else:
                assert (
                    positions[place - 1],
                    targets[place - 1],
                    distances[place - 1],
                    writes[place - 1],
                ) == (0, IGNORE, 0, 0)


@pytest.mark.parametrize("ignore", [0.1, 0.8, 0.98])
def test_instructions_come_in_their_shares(chi_squared: Callable[..., float], ignore: float) -> None:
    count = 10_000
    instructions = sample(build(seq_len=12, ignore=ignore), count).inputs[:, ::2]
    rest = (1 - ignore) / 2
    expected = torch.tensor([rest, rest, ignore], dtype=torch.float64) * count
    for place in range(1, 5):
        assert chi_squared(instructions[:, place].bincount(minlength=5)[2:], expected) > ALPHA / 4


def test_bits_are_uniform_whatever_the_instruction(chi_squared: Callable[..., float]) -> None:
    inputs = sample(build(seq_len=8, ignore=0.5), 6000).inputs
    for place in range(4):
        assert chi_squared(inputs[:, 2 * place + 1].bincount(minlength=2), torch.full((2,), 3000)) > ALPHA
    skipped = inputs[:, 2] == SKIP
    # an ignored bit says nothing of what was written
    same = (inputs[skipped, 3] == inputs[skipped, 1]).long()
    assert chi_squared(same.bincount(minlength=2), torch.full((2,), len(same) / 2)) > ALPHA


def test_the_quick_preset_tests_nothing_that_was_trained_on() -> None:
    task = build(**FlipFlop.presets["quick"].task)
    trained = set(map(tuple, sample(task, 10_000).inputs.tolist()))
    assert not trained & set(map(tuple, sample(task, 2000, "test").inputs.tolist()))


def test_explain_says_what_is_due(snapshot: SnapshotAssertion) -> None:
    task = build(seq_len=8)
    batch = sample(task, 1)
    batch = batch._replace(
        inputs=torch.tensor([[WRITE, 1, SKIP, 0, READ, 1, READ, 1]]),
        positions=torch.tensor([[0, 4, 6]]),
        targets=torch.tensor([[IGNORE, 1, 1]]),
    )
    assert task.explain(batch, 0) == snapshot
    long = build(seq_len=2048)
    assert len(long.explain(sample(long, 1), 0)) < 1500


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"seq_len": 63}, "seq_len 63 64"),
        ({"seq_len": 2}, "seq_len 2 4"),
        ({"ignore": 1.1}, "ignore 1.1 1"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(FlipFlop, values, facts)
