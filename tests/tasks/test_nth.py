from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Prediction
from linbench.tasks.nth import BLANK, Nth
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

N = 4000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "quick": {},
    "few are asked for": {"seq_len": 30, "items": 10, "asked": 3},
    "smallest": {"seq_len": 4, "items": 2, "asked": 2, "values": 2},
    "no blanks": {"seq_len": 90, "items": 80, "asked": 10},
}

build = partial(build_task, Nth)
task = task_fixture(Nth, SETTINGS)


def test_every_row_is_counted_by_hand(task: Nth) -> None:
    s = task.settings
    batch = sample(task, 30)
    assert task.io == IO(1 + s.items + s.values, 1 + s.items + s.values)
    for row in range(30):
        tokens = batch.inputs[row].tolist()
        places = [at for at, token in enumerate(tokens[: s.text]) if token != BLANK]
        values = [tokens[at] for at in places]
        asked = [token - 1 for token in tokens[s.text :]]
        assert len(values) == s.items
        assert min(values) > s.items
        assert len(set(asked)) == s.asked
        assert batch.positions[row].tolist() == list(range(s.text, s.seq_len))
        assert batch.targets[row].tolist() == [values[number] for number in asked]
        assert batch.slices["number"][row].tolist() == asked
        assert batch.slices["doublings"][row].tolist() == [
            (s.text + n - places[number]).bit_length() - 1 for n, number in enumerate(asked)
        ]
        around = [IGNORE, *values, IGNORE]
        assert batch.facts["beside"][row].tolist() == [[around[n], around[n + 2]] for n in asked]
    assert torch.equal(task.solve(batch), batch.targets)


def test_values_places_and_questions_are_even(chi_squared: Callable[..., float]) -> None:
    batch = sample(build(asked=3), N)
    text = batch.inputs[:, :61]
    assert chi_squared(text[text > 0].sub(9).bincount(minlength=16), torch.full((16,), N / 2)) > ALPHA
    assert chi_squared((text > 0).sum(dim=0), torch.full((61,), 8 * N / 61)) > ALPHA
    assert (
        chi_squared(batch.slices["number"].flatten().bincount(minlength=8), torch.full((8,), 3 * N / 8))
        > ALPHA
    )


@pytest.mark.parametrize(("items", "values", "chance"), [(8, 16, 0.258), (16, 16, 0.192), (8, 64, 0.172)])
def test_chance_is_the_commonest_value(items: int, values: int, chance: float) -> None:
    assert build(items=items, values=values).chance() == pytest.approx(chance, abs=6e-4)


def test_errors_beside_the_value_are_told_apart() -> None:
    task = build(seq_len=8, items=4, asked=2, values=4)
    batch = sample(task, 1)._replace(
        targets=torch.tensor([[5, 7]]), facts={"beside": torch.tensor([[[IGNORE, 6], [6, 7]]])}
    )
    for answers, beside in (([5, 7], 0), ([6, 7], 1), ([6, 6], 2), ([8, 5], 0)):
        found = task.score(batch, Prediction(torch.tensor([answers]), torch.zeros(1, 2)))
        assert [float(x) for x in found["beside"]] == [beside, 2]


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"asked": 9}, "asked items 8 9"),
        ({"seq_len": 15}, "8 16 seq_len 15"),
        ({"items": 1}, "items 1 2"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Nth, values, facts)


def test_explain_tells_values_and_answers() -> None:
    task = build(seq_len=7, items=2, asked=2, values=4)
    batch = sample(task, 1)._replace(
        inputs=torch.tensor([[0, 5, 0, 0, 3, 2, 1]]), targets=torch.tensor([[3, 5]])
    )
    batch.slices["number"] = torch.tensor([[1, 0]])
    explained = task.explain(batch, 0)
    for said in ("5 at 1, 3 at 4", "at position 5, for value 2: 3", "at position 6, for value 1: 5"):
        assert said in explained
