from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.tasks.base import Batch, Prediction
from linbench.tasks.versioned_overwrite import ASK, BAD, FIRST_VERSION, VersionedOverwrite
from tests.helpers.tasks import accuracy, assert_refused, build_task, sample, task_fixture

N = 4000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "quick": {},
    "no place to spare": {"seq_len": 32},
    "noise": {"seq_len": 64, "noises": 5},
    "retracted": {"seq_len": 128, "variables": 3, "writes": 5, "retracted": 2, "noises": 9},
    "by version": {"seq_len": 64, "ask": "version", "retracted": 1, "writes": 3, "versions": 3},
}

build = partial(build_task, VersionedOverwrite)
task = task_fixture(VersionedOverwrite, SETTINGS)


def read(
    task: VersionedOverwrite, tokens: list[int]
) -> tuple[list[tuple[int, ...]], list[tuple[int, int, int]]]:
    """Writes as (value's position, key, version, value, counts), and questions as (position, key, version).

    The version of a question is -1 where none is named.
    """
    s, named, writes, questions, at = task.settings, task.settings.ask == "version", [], [], 0
    while at < len(tokens):
        if tokens[at] == ASK:
            questions.append((at + 1 + named, tokens[at + 1], tokens[at + 2] if named else -1))
            at += 2 + named
        elif s.first_key <= tokens[at] < s.first_value:
            counts = at + 3 >= len(tokens) or tokens[at + 3] != BAD
            writes.append((at + 2, *tokens[at : at + 3], counts))
            at += 4 - counts
        else:
            assert tokens[at] == 0 if not s.noises else tokens[at] >= s.first_noise
            at += 1
    return writes, questions


def test_every_row_is_read_by_hand(task: VersionedOverwrite) -> None:
    s = task.settings
    batch = sample(task, 30)
    for row in range(30):
        writes, questions = read(task, batch.inputs[row].tolist())
        of_key = defaultdict(list)
        for write in writes:
            of_key[write[1]].append(write)
        assert len(of_key) == len(questions) == s.variables
        assert len({value for *_, value, _ in writes}) == len(writes) == s.all_writes
        assert batch.positions[row].tolist() == [at for at, *_ in questions]
        assert questions[0][0] > writes[-1][0]
        for n, (at, key, asked) in enumerate(questions):
            own = of_key.pop(key)
            assert len({version for _, _, version, _, _ in own}) == s.writes
            assert sum(not counts for *_, counts in own) == s.retracted
            version = max(v for _, _, v, _, counts in own if counts) if asked < 0 else asked
            due = [write for write in own if write[4] and write[2] == version]
            assert [write[3] for write in due] == [int(batch.targets[row, n])]
            assert {name: int(x[row, n]) for name, x in batch.slices.items()} == {
                "arrived_later": len(own) - 1 - own.index(due[0]),
                "version": version - FIRST_VERSION,
                "doublings": (at - due[0][0]).bit_length() - 1,
            }
            assert batch.facts["history"][row, n].tolist() == [write[3] for write in own[::-1]]
            assert batch.facts["counted"][row, n].tolist() == [write[4] for write in own[::-1]]
    assert torch.equal(task.solve(batch), batch.targets)


@pytest.mark.parametrize("values", [{"writes": 3}, {"variables": 8, "writes": 4, "seq_len": 112}])
def test_the_order_of_arrival_tells_nothing(
    chi_squared: Callable[..., float], values: dict[str, int]
) -> None:
    """The last and the first value of a key are right in 1 / writes of cases, the highest version of all in
    1 / variables, and the last write of all in one over both."""
    task = build(**values)
    s = task.settings
    batch = sample(task, N)
    later = batch.slices["arrived_later"].flatten().bincount(minlength=s.writes)
    assert chi_squared(later, torch.full((s.writes,), int(later.sum()) / s.writes)) > ALPHA
    history = batch.facts["history"]
    counts, _, version, value = task._read(batch.inputs)
    time = torch.arange(s.seq_len)
    guesses = [
        (history[:, :, 0], 1 / s.writes),
        (history[:, :, -1], 1 / s.writes),
        (value.gather(1, (counts * version).argmax(dim=1, keepdim=True)), 1 / s.variables),
        (value.gather(1, (counts * time).argmax(dim=1, keepdim=True)), 1 / s.all_writes),
    ]
    for guess, expected in guesses:
        assert accuracy(task, batch, guess.expand_as(batch.targets)) == pytest.approx(expected, abs=0.015)


@pytest.mark.parametrize(
    ("values", "chance"),
    [
        ({}, 1 / 4),
        ({"variables": 8, "seq_len": 64}, 1 / 8),
        ({"ask": "version", "versions": 2}, 1 / 4),
        ({"ask": "version"}, 0.713),
    ],
)
def test_chance_is_the_value_of_any_key_that_may_be_meant(values: dict[str, Any], chance: float) -> None:
    assert build(**values).chance() == pytest.approx(chance, abs=6e-4)


def test_errors_are_told_apart() -> None:
    """Key 6 is given value 20, 21 (retracted) and 22 in this order, of which 20 has the highest version, and
    key 7 value 23."""
    task = build(versions=3, keys=10, values=10, writes=3, variables=2, retracted=1, seq_len=32)
    tokens = [6, 5, 20, 6, 4, 21, BAD, 6, 3, 22, 7, 3, 23, ASK, 6] + [0] * 17
    place = torch.tensor([[14]])
    batch = Batch(
        torch.tensor([tokens]),
        place,
        torch.tensor([[20]]),
        dict.fromkeys(task.slice_sizes(), 0 * place),
        {"history": torch.tensor([[[22, 21, 20]]]), "counted": torch.tensor([[[True, False, True]]])},
    )
    assert task.solve(batch).tolist() == [[20]]
    kinds = ["accuracy", "stale_arrival", "other_version", "retracted", "cross", "alien"]
    for answer, expected in (
        (20, "accuracy"),
        (22, "stale_arrival"),
        (21, "retracted"),
        (23, "cross"),
        (24, "alien"),
        (6, "alien"),
    ):
        found = task.score(batch, Prediction(torch.tensor([[answer]]), torch.zeros(1, 1)))
        assert [kind for kind in kinds if float(found[kind][0])] == [expected]
    batch.facts["history"][:] = torch.tensor([21, 22, 20])  # type: ignore[index]
    batch.facts["counted"][:] = True  # type: ignore[index]
    found = task.score(batch, Prediction(torch.tensor([[22]]), torch.zeros(1, 1)))
    assert [kind for kind in kinds if float(found[kind][0])] == ["other_version"]
    explained = task.explain(batch, 0)
    for said in ("6=20 (version 3), 6=22 (version 1), 7=23", "at position 14 for 6: 20"):
        assert said in explained


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"variables": 33}, "variables keys 33 32"),
        ({"writes": 10}, "versions 10 9"),
        ({"retracted": 2}, "retracted 1 2"),
        ({"values": 7}, "values 8 7"),
        ({"seq_len": 31}, "8 4 seq_len 32 31"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(VersionedOverwrite, values, facts)
