from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.needle import AND, ASK, DIGITS, SET, Needle
from tests.helpers.tasks import assert_refused, build_task, sample

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]


build = partial(build_task, Needle)


def text_of(task: Needle, batch: Batch) -> Tensor:
    """All before the questions."""
    return batch.inputs[:, : task.seq_len + 1 - task.settings.queries * task.settings.question]


def test_one_needle_and_its_question_token_by_token() -> None:
    task = build(seq_len=30, depth=0.0, words=5, keys=3)
    batch = sample(task, 50)
    for row in range(50):
        tokens, value = batch.inputs[row].tolist(), batch.targets[row].tolist()
        key = tokens[1]
        assert tokens[:9] == [SET, key, *value]
        assert tokens[-8:] == [ASK, key, *value[:-1]]
        assert batch.positions[row].tolist() == [23, 24, 25, 26, 27, 28, 29]
        assert DIGITS + 10 <= key < DIGITS + 13
        assert all(DIGITS + 13 <= word < DIGITS + 18 for word in tokens[9:-8])
        assert batch.slices["place"][row].tolist() == list(range(7))
        assert batch.slices["depth"][row].tolist() == [0] * 7


@pytest.mark.parametrize("haystack", ["repeat", "zipf", "markov", "needles"])
def test_several_values_of_several_keys(haystack: str) -> None:
    task = build(seq_len=200, haystack=haystack, needles=3, values_per_key=2, queries=2, keys=8, words=6)
    batch = sample(task, 100)
    assert task.answers == 2 * 2 * 7
    text = text_of(task, batch)
    for row in range(100):
        tokens, question = text[row].tolist(), batch.inputs[row, text.shape[1] :].tolist()
        asked = [question[1], question[18]]
        told = {key: [] for key in asked}
        depths = {key: [] for key in asked}
        for at, token in enumerate(tokens):
            if token == SET and tokens[at + 1] in told:
                told[tokens[at + 1]].append(tokens[at + 2 : at + 9])
                depths[tokens[at + 1]].append(at)
        assert [len(values) for values in told.values()] == [2, 2]
        expected = []
        for key in asked:
            expected += [ASK, key, *told[key][0], AND, *told[key][1]]
        assert question == expected[:-1]
        assert batch.targets[row].tolist() == [
            digit for key in asked for value in told[key] for digit in value
        ]
        for n, at in enumerate(batch.positions[row].tolist()):
            before = (
                ([asked[n // 14]] if n // 7 % 2 == 0 else [AND])
                if n % 7 == 0
                else [int(batch.targets[row, n - 1])]
            )
            assert [int(batch.inputs[row, at])] == before
        found = batch.slices["depth"][row].view(4, 7)
        assert (found == found[:, :1]).all()
        assert all(first <= second for first, second in found[:, 0].view(2, 2).tolist())


def test_a_sentence_repeats_around_needles() -> None:
    task = build(seq_len=120, haystack="repeat", words=20, needles=2)
    batch = sample(task, 20)
    first_word = DIGITS + 10 + 64
    for row in text_of(task, batch).tolist():
        words = [token - first_word for token in row if token >= first_word]
        assert words == [i % 20 for i in range(task.settings.hay)]


def test_an_essay_follows_the_power_law(chi_squared: Probability) -> None:
    task = build(seq_len=20, depth=1.0, words=6, keys=2, exponent=1.0)
    assert task.settings.hay == 3
    words = sample(task, N).inputs[:, :3] - DIGITS - 12
    weights = 1 / torch.arange(1, 7, dtype=torch.float64)
    for place in range(3):
        assert chi_squared(words[:, place].bincount(minlength=6), N * weights / weights.sum()) > ALPHA


def test_a_chain_goes_on_behind_needles(chi_squared: Probability) -> None:
    task = build(seq_len=25, haystack="markov", needles=1, words=5, keys=2)
    batch = sample(task, N)
    text = text_of(task, batch) - DIGITS - 12
    words = text[text >= 0].view(N, task.settings.hay)
    new = (words[:, 7] - words[:, 6] - words[:, 5]) % 5
    weights = 1 / torch.arange(1, 6, dtype=torch.float64)
    assert chi_squared(new.bincount(minlength=5), N * weights / weights.sum()) > ALPHA


@pytest.mark.parametrize(
    ("key", "value"), [("word", "number"), ("uuid", "uuid"), ("word", "uuid"), ("uuid", "number")]
)
def test_a_haystack_of_needles_is_of_keys_nobody_asks_for(key: str, value: str) -> None:
    task = build(seq_len=400, haystack="needles", key=key, value=value, keys=5, needles=2, queries=2)
    s = task.settings
    batch = sample(task, 50)
    key_length = 32 if key == "uuid" else 1
    first_word = DIGITS + (10 if (key, value) == ("word", "number") else 16) + 5
    for row, text in enumerate(text_of(task, batch).tolist()):
        rest = s.hay % s.needle
        assert text[:rest] == [first_word] * rest
        needles = [text[i : i + s.needle] for i in range(rest, len(text), s.needle)]
        assert all(needle[0] == SET and SET not in needle[1:] for needle in needles)
        asked = [batch.inputs[row, -q * s.question + 2 :][:key_length].tolist() for q in (2, 1)]
        keys = [needle[1 : 1 + key_length] for needle in needles]
        assert [keys.count(one) for one in asked] == [1, 1]
        for i, one in enumerate(asked):
            digits = needles[keys.index(one)][1 + key_length :]
            assert digits == batch.targets[row].view(2, -1)[i].tolist()
            assert all(
                DIGITS <= digit < DIGITS + (16 if value == "uuid" else 10)
                for needle in needles
                for digit in needle[1 + key_length :]
            )


def test_digits_keys_and_depths_are_uniform(chi_squared: Probability) -> None:
    batch = sample(build(seq_len=27, keys=5), N)
    for place in (0, 6):
        assert (
            chi_squared((batch.targets[:, place] - DIGITS).bincount(minlength=10), torch.full((10,), N / 10))
            > ALPHA
        )
    key = batch.inputs.gather(1, batch.positions[:, :1])[:, 0]
    assert chi_squared((key - DIGITS - 10).bincount(minlength=5), torch.full((5,), N / 5)) > ALPHA
    assert chi_squared(batch.slices["depth"][:, 0].bincount(minlength=11), torch.full((11,), N / 11)) > ALPHA


def test_any_needle_may_be_the_one_asked_for(chi_squared: Probability) -> None:
    task = build(seq_len=50, needles=3, keys=3)
    batch = sample(task, N)
    text = text_of(task, batch)
    keys = text.gather(1, 1 + (text == SET).nonzero()[:, 1].view(N, 3))
    asked = (keys == batch.inputs.gather(1, batch.positions[:, :1])).long().argmax(dim=1)
    assert chi_squared(asked.bincount(minlength=3), torch.full((3,), N / 3)) > ALPHA


def test_the_solver_tells_values_apart_by_where_they_stood() -> None:
    task = build(seq_len=9 + 9 + 16, values_per_key=2, keys=2, words=2)
    one, other = [3, 4, 5, 6, 7, 8, 9], [12, 11, 10, 9, 8, 7, 6]
    inputs = torch.tensor([[SET, 14, *one, SET, 14, *other, ASK, 14, *one, AND, *other[:-1]]])
    batch = sample(task, 1)._replace(inputs=inputs, targets=torch.full((1, 14), IGNORE))
    assert task.solve(batch).tolist() == [[*one, *other]]


def test_a_value_is_right_when_all_its_digits_are() -> None:
    task = build(seq_len=100, needles=2, queries=2)
    batch = sample(task, 10)
    answers = batch.targets.clone()
    answers[:4, 3] += 1
    answers[2:3, 9] += 1
    scores = task.score(batch, Prediction(answers, torch.zeros(answers.shape)))
    assert [float(x) for x in scores["accuracy"]] == [135, 140]
    assert [float(x) for x in scores["exact"]] == [15, 20]
    right, due = scores["exact/depth"]
    assert (float(right.sum()), float(due.sum())) == (15, 20)
    assert scores["accuracy/place"][0].tolist() == [20, 20, 19, 16, 20, 20, 20]


def test_longer_is_more_hay() -> None:
    task = build(seq_len=64, needles=2)
    assert build(needles=2, **task.longer(8)).settings.hay == task.settings.hay + 7 * 64
    assert build().chance() == 1 / 10
    assert build(value="uuid", seq_len=256).chance() == 1 / 16


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"queries": 2}, "key needles 2 1"),
        ({"seq_len": 16}, "needles 17 seq_len 16"),
        ({"needles": 4, "keys": 3}, "4 needles keys 3"),
        ({"keys": 1, "haystack": "needles"}, "haystack needles keys 1"),
        ({"haystack": "essay"}, "haystack needles"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Needle, values, facts)


def test_the_tightest_sequence_has_no_hay() -> None:
    task = build(seq_len=17)
    batch = sample(task, 3)
    assert task.settings.hay == 0
    assert torch.equal(task.solve(batch), batch.targets)


@pytest.mark.parametrize(
    "values",
    [{}, {"key": "uuid", "value": "uuid", "seq_len": 256}, {"needles": 8, "queries": 8, "seq_len": 256}],
)
def test_explain_names_values_keys_and_places(values: dict[str, Any]) -> None:
    task = build(**values)
    batch = sample(task, 2)
    text = task.explain(batch, 1)
    value = "".join(
        f"{digit - DIGITS:x}" for digit in batch.targets[1, : 32 if "value" in values else 7].tolist()
    )
    assert f"from position {int(batch.positions[1, 0])} on, {value} is due" in text
    assert len(text) < 1500
    assert ("2 more" in text) == ("needles" in values)
