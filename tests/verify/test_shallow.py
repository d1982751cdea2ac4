"""Shallow baselines, on sequences that can be read by hand."""

import pytest
import torch

from linbench.tasks.base import Task
from linbench.tasks.compression import Compression
from linbench.tasks.induction import Induction
from linbench.tasks.parity import Parity
from linbench.tasks.regression import Regression
from linbench.tasks.stacked_mqar import StackedMQAR
from linbench.verify import shallow
from linbench.verify.shallow import BASELINES, CommonestLabel, Contexts, applies, shallow_scores
from tests.helpers.tasks import build_task

ANSWERS = torch.tensor([False, False, False, True, True, True])
"""Tokens 3, 4 and 5 are answers, 0, 1 and 2 are not."""


def contexts(tokens: list[int], position: int) -> Contexts:
    one = torch.zeros(1, dtype=torch.int64)
    return Contexts(torch.tensor([tokens]), one + position, one, one - 1, one)


@pytest.mark.parametrize(
    ("reading", "tokens", "position", "expected"),
    [
        ("first", [0, 4, 1, 3, 5], 3, 4),
        ("first", [0, 1, 2, 3, 5], 2, -1),
        ("last", [0, 4, 1, 3, 5], 3, 3),
        ("mode", [4, 4, 3, 3, 3], 2, 4),
        ("mode", [4, 4, 3, 3, 3], 4, 3),
        ("mode", [0, 0, 0, 0, 3], 3, -1),
        ("rarest", [4, 4, 0, 0, 3], 4, 3),
        ("rarest", [4, 4, 0, 0, 3], 3, 4),
        ("beside_last", [1, 3, 1, 4, 1, 5], 4, 4),
        ("beside_first", [1, 3, 1, 4, 1, 5], 4, 3),
        ("beside_last", [1, 3, 0, 4, 2, 5], 4, -1),
        ("suffix", [0, 1, 3, 2, 1, 4, 0, 1, 5], 7, 3),
        ("suffix", [0, 1, 3, 2, 1, 4, 5, 1, 5], 7, 4),
        ("suffix", [0, 1, 3, 5, 5, 5, 5, 2, 5], 7, -1),
    ],
)
def test_a_reading_is_a_token_before_the_answer(
    reading: str, tokens: list[int], position: int, expected: int
) -> None:
    read = shallow._READINGS[reading](contexts(tokens, position), ANSWERS)
    assert read.tolist() == [expected]


@pytest.mark.parametrize("reading", list(shallow._READINGS))
def test_no_reading_looks_at_what_comes_after_the_question(reading: str) -> None:
    read = shallow._READINGS[reading]
    before = [1, 3, 2, 4, 1, 3, 1]
    found = {int(read(contexts([*before, *rest], 6), ANSWERS)) for rest in ([3, 3], [4, 4], [5, 0])}
    assert len(found) == 1


def test_the_commonest_label_of_a_key_is_found() -> None:
    keys = torch.tensor([7, 7, 7, 2, 2, -1, 9])
    labels = torch.tensor([1, 0, 1, 5, 5, 3, 4])
    assert CommonestLabel(keys, labels)(torch.tensor([2, 7, 9, 8, -1])).tolist() == [5, 1, 4, -1, -1]
    assert CommonestLabel(keys, labels, least=2)(torch.tensor([2, 7, 9])).tolist() == [5, 1, -1]
    assert CommonestLabel(keys[:0], labels[:0])(torch.tensor([2])).tolist() == [-1]


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shallow, "TEST_EXAMPLES", 512)
    monkeypatch.setattr(shallow, "TRAIN_ANSWERS", 2048)


def test_what_followed_the_special_token_is_induction(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    scores = shallow_scores(build_task(Induction, seq_len=16))
    assert list(scores) == list(BASELINES)
    assert {name for name, score in scores.items() if score.accuracy == 1} == {
        "suffix",
        "beside_last",
        "beside_first",
    }
    assert scores["prior"].accuracy < 0.15  # one of 15, within five standard errors
    assert scores["prior"].answers == 512


def test_four_bits_are_a_context_of_four_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    scores = shallow_scores(build_task(Parity, min_length=4, max_length=4))
    assert scores["ngram"].accuracy == 1
    assert scores["prior"].accuracy < 0.6


@pytest.mark.parametrize("cls", [StackedMQAR, Regression, Compression])
def test_vectors_and_answers_of_one_place_have_no_shallow_baselines(cls: type[Task]) -> None:
    task = build_task(cls)
    assert not applies(task)
    assert shallow_scores(task) == {}
