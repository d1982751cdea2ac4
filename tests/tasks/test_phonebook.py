import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.phonebook import ASK, DIGITS, ENTRY, NAMES, Phonebook
from tests.helpers.tasks import assert_refused, build_task, sample

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]


build = partial(build_task, Phonebook)


@pytest.mark.parametrize("demonstrations", [0, 2, 4])
def test_a_book_demonstrations_and_a_question(demonstrations: int) -> None:
    task = build(entries=5, demonstrations=demonstrations, digits=4, first_names=3, last_names=2)
    batch = sample(task, 200)
    assert task.seq_len == (5 + demonstrations + 1) * 7 - 1
    for row in range(200):
        tokens, number = batch.inputs[row].tolist(), batch.targets[row].tolist()
        book = [tokens[7 * i : 7 * i + 7] for i in range(5)]
        names = [tuple(entry[1:3]) for entry in book]
        assert [entry[0] for entry in book] == [ENTRY] * 5
        assert len(set(names)) == 5
        assert all(NAMES <= first < NAMES + 3 <= last < NAMES + 5 for first, last in names)
        assert all(DIGITS <= digit < NAMES for entry in book for digit in entry[3:])
        rest = [*tokens[35:], number[-1]]
        asked = [rest[i : i + 7] for i in range(0, len(rest), 7)]
        assert [line[0] for line in asked] == [ASK] * (demonstrations + 1)
        entries = [names.index(tuple(line[1:3])) for line in asked]
        assert len(set(entries)) == demonstrations + 1
        assert all(line[3:] == book[entry][3:] for line, entry in zip(asked, entries, strict=True))
        assert asked[-1][3:] == number
        assert batch.slices["entry"][row].tolist() == [entries[-1]] * 4
        assert batch.slices["place"][row].tolist() == [0, 1, 2, 3]
        assert batch.positions[row].tolist() == list(range(task.seq_len - 4, task.seq_len))


def test_names_digits_and_what_is_asked_are_uniform(chi_squared: Probability) -> None:
    batch = sample(build(entries=4, demonstrations=1, digits=2, first_names=2, last_names=3), N)
    names = 3 * (batch.inputs[:, 1] - NAMES) + batch.inputs[:, 2] - NAMES - 2
    assert chi_squared(names.bincount(minlength=6), torch.full((6,), N / 6)) > ALPHA
    numbers = 10 * (batch.targets[:, 0] - DIGITS) + batch.targets[:, 1] - DIGITS
    assert chi_squared(numbers.bincount(minlength=100), torch.full((100,), N / 100)) > ALPHA
    assert chi_squared(batch.slices["entry"][:, 0].bincount(minlength=4), torch.full((4,), N / 4)) > ALPHA


def test_the_solver_needs_both_names() -> None:
    task = build(entries=3, demonstrations=0, digits=2)
    inputs = torch.tensor([[ENTRY, 20, 80, 2, 3, ENTRY, 20, 81, 4, 5, ENTRY, 21, 81, 6, 7, ASK, 20, 81, 4]])
    assert task.solve(Batch(inputs, torch.tensor([[17, 18]]), torch.full((1, 2), IGNORE), {})).tolist() == [
        [4, 5]
    ]


def test_a_number_is_right_when_all_its_digits_are() -> None:
    task = build()
    batch = sample(task, 20)
    answers = batch.targets.clone()
    answers[:5, 9] += 1
    scores = task.score(batch, Prediction(answers, torch.zeros(answers.shape)))
    assert [float(x) for x in scores["accuracy"]] == [195, 200]
    assert [float(x) for x in scores["exact"]] == [15, 20]
    assert float(scores["accuracy/place"][0][9]) == 15


def test_chance_knows_which_entries_agree_with_the_digits_said() -> None:
    either = (1 + 1 / 10) / 2
    assert build(entries=3, demonstrations=1, digits=1).chance() == pytest.approx(either)
    assert build(entries=3, demonstrations=1, digits=2).chance() == pytest.approx(
        (either + either / 10 + 9 / 10) / 2
    )
    assert build(entries=3, demonstrations=2).chance() == 1 / 10, (
        "one entry is left, so that the sequence must not be read"
    )


def test_longer_is_a_longer_book() -> None:
    assert build(**build(entries=10).longer(50)).settings.entries == 500


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"entries": 2}, "2 demonstrations 3 entries"),
        ({"entries": 7, "first_names": 2, "last_names": 3}, "7 entries first_names last_names 6"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Phonebook, values, facts)


@pytest.mark.parametrize("demonstrations", [0, 2, 30])
def test_explain_says_who_is_asked_for_and_the_number(demonstrations: int) -> None:
    task = build(entries=40, demonstrations=demonstrations)
    batch = sample(task, 2)
    text = task.explain(batch, 1)
    number = "".join(str(digit - DIGITS) for digit in batch.targets[1].tolist())
    first, last = batch.inputs[1, task.seq_len - 11 : task.seq_len - 9].tolist()
    asked = re.findall(r"\d+", text.partition(" Then ")[2])
    assert asked[:4] == [str(first), str(last), str(task.seq_len - 10), number]
    assert ("demonstrations" in text) == (demonstrations > 0)
    assert len(text) < 1500
