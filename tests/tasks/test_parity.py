from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Prediction
from linbench.tasks.parity import Parity
from tests.helpers.tasks import assert_refused, build_task, sample

ALPHA = 1e-3


build = partial(build_task, Parity)


def test_at_the_end_the_parity_of_all_bits_is_due_where_nothing_stands() -> None:
    task = build(min_length=3, max_length=12, answer="last")
    batch = sample(task, 400)
    assert (task.seq_len, task.answers, task.io, task.chance()) == (12, 1, IO(3, 3), 0.5)
    for tokens, (at,), (target,), (length,) in zip(
        *(x.tolist() for x in (*batch[:3], batch.slices["length"])), strict=True
    ):
        assert 2 <= length == at <= 11
        assert all(token in (1, 2) for token in tokens[:at])
        assert tokens[at:] == [0] * (12 - at)
        assert target == 1 + tokens.count(2) % 2


def test_at_every_bit_the_parity_up_to_it_is_due() -> None:
    batch = sample(build(min_length=2, max_length=9, answer="cumulative"), 300)
    for tokens, positions, targets, lengths in zip(
        *(x.tolist() for x in (*batch[:3], batch.slices["length"])), strict=True
    ):
        bits = [token - 1 for token in tokens if token]
        count = len(bits)
        assert tokens[count:] == [0] * (9 - count)
        assert positions == [*range(count), *[0] * (9 - count)]
        assert targets == [1 + sum(bits[: i + 1]) % 2 for i in range(count)] + [IGNORE] * (9 - count)
        assert lengths == [*range(1, count + 1), *[0] * (9 - count)]


@pytest.mark.parametrize("answer", ["last", "cumulative"])
def test_lengths_bits_and_parities_are_uniform(chi_squared: Callable[..., float], answer: str) -> None:
    batch = sample(build(min_length=26, max_length=30, answer=answer), 5000)
    count = (batch.inputs > 0).sum(dim=1) + (answer == "last")
    assert chi_squared(count.bincount(minlength=31)[26:], torch.full((5,), 1000)) > ALPHA
    for at in (0, 11, 24):
        assert chi_squared((batch.inputs[:, at] - 1).bincount(minlength=2), torch.full((2,), 2500)) > ALPHA
    assert chi_squared((batch.targets[:, 0] - 1).bincount(minlength=2), torch.full((2,), 2500)) > ALPHA


def test_the_quick_preset_tests_nothing_that_was_trained_on() -> None:
    task = build(**Parity.presets["quick"].task)
    trained = set(map(tuple, sample(task, 20_000).inputs.tolist()))
    assert not trained & set(map(tuple, sample(task, 2000, "test").inputs.tolist()))
    assert not trained & set(map(tuple, sample(task, 2000, "validation").inputs.tolist()))


def test_scores_tell_how_many_sequences_are_right_so_far() -> None:
    task = build(min_length=4, max_length=4)
    batch = sample(task, 2)
    wrong = torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)
    found = task.score(
        batch, Prediction(torch.where(wrong, 3 - batch.targets, batch.targets), torch.zeros(2, 4))
    )
    assert [float(x) for x in found["accuracy"]] == [7, 8]
    assert [float(x) for x in found["sequence"]] == [6, 8]
    assert found["sequence/length"][0].tolist() == [0, 2, 2, 1, 1]
    last = build(min_length=4, max_length=4, answer="last")
    assert "sequence" not in last.score(
        sample(last, 2), Prediction(torch.ones(2, 1, dtype=torch.int64), torch.zeros(2, 1))
    )


def test_longer_sequences_are_longer_at_both_ends() -> None:
    assert build(min_length=3, max_length=40).longer(2) == {"min_length": 6, "max_length": 80}


def test_explain_says_what_is_due(snapshot: SnapshotAssertion) -> None:
    task = build(min_length=6, max_length=6, answer="last")
    batch = sample(task, 1)._replace(inputs=torch.tensor([[2, 1, 2, 2, 1, 0]]), targets=torch.tensor([[2]]))
    assert task.explain(batch, 0) == snapshot(name="last")
    task = build(min_length=3, max_length=3)
    batch = sample(task, 1)._replace(inputs=torch.tensor([[2, 1, 2]]), targets=torch.tensor([[2, 2, 1]]))
    assert task.explain(batch, 0) == snapshot(name="every")


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"min_length": 9, "max_length": 8}, "min_length max_length 9 8"),
        ({"min_length": 1}, "min_length 1 2"),
        ({"answer": "first"}, "answer"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Parity, values, facts)
