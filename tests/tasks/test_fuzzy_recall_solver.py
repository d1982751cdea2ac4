"""The answers that fuzzy recall determines: the solver knows all of them."""

from typing import Any

import pytest
import torch

from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.fuzzy_recall import FuzzyRecall
from tests.helpers.fuzzy_recall import SETTINGS, build, sample
from tests.helpers.tasks import unanswered

N = 20_000


def solved(task: FuzzyRecall, batch: Batch) -> float:
    answers = task.solve(unanswered(batch))
    right, counted = task.score(batch, Prediction(answers, torch.zeros(answers.shape)))["accuracy"]
    return float(right / counted)


def test_the_solver_by_hand() -> None:
    # keys 0 to 3, values 4 to 7, filler 8
    task = build(vocab_size=9, k_motif_size=2, v_motif_size=2, seq_len=16)
    tokens = torch.tensor([[8, 0, 1, 6, 4, 1, 0, 7, 0, 1, 6, 4, 2, 0, 4, 1]])
    answers = task.solve(Batch(tokens, torch.arange(16)[None], torch.full((1, 16), IGNORE), {}))[0].tolist()
    assert answers[9:11] == [6, 4], "the value of 0 1"
    assert answers[13] == 4, "the first that the value of 2 0 may begin with"
    assert answers[3] == 4
    assert answers[7] == 4, "after 7, of a value that is not known"


@pytest.mark.parametrize("values", SETTINGS.values(), ids=SETTINGS)
def test_the_solver_is_right_wherever_the_key_was_shown(values: dict[str, Any]) -> None:
    task = build(**values)
    batch = sample(task, 300)
    answers = task.solve(unanswered(batch))
    known = batch.is_answer & (batch.slices["seen"] > 0)
    assert known.any()
    assert torch.equal(answers[known], batch.targets[known])


@pytest.mark.slow
def test_how_often_the_last_value_cannot_be_known_at_the_published_baseline() -> None:
    """The share is 2.3 % of sequences.

    A generator that makes the published one's decisions one at a time has 18,610 of 800,000.
    """
    task, rows = build(**FuzzyRecall.presets["mad"].task), 40_000
    batch = sample(task, rows)
    last = batch.positions.masked_fill(~batch.is_answer, -1).argmax(dim=1, keepdim=True)
    never = float((batch.slices["seen"].gather(1, last) == 0).double().mean())
    assert abs(never - 0.0233) < 4 * (0.0233 / rows) ** 0.5
    assert sum(task._expected_repeats(3 + size)[0] for size in (1, 2, 3)) / 3 == pytest.approx(
        0.023, abs=5e-4
    )


def test_where_there_is_always_room_everything_can_be_known() -> None:
    task = build(vocab_size=7, k_motif_size=1, v_motif_size=1, seq_len=21)
    assert task.optimum() == 1
    assert solved(task, sample(task, 2000)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("rows", [4000, pytest.param(N, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"vocab_size": 128},
        {"multi_query": False},
        {"seq_len": 32},
        {"vocab_size": 24, "noise_vocab_size": 6, "frac_noise": 0.4},
    ],
)
def test_the_optimum_is_what_the_solver_attains(values: dict[str, Any], rows: int) -> None:
    task = build(**values)
    batch = sample(task, rows)
    # a guess finds the rest
    lost = (1 - 1 / (task.settings.values - batch.slices["token"])) * (
        batch.is_answer & (batch.slices["seen"] == 0)
    )
    due = batch.is_answer.sum(dim=1).double()
    ratio = float(lost.sum() / due.sum())
    error = float((lost.sum(dim=1) - ratio * due).std()) / float(due.mean()) / rows**0.5
    assert abs(1 - ratio - task.optimum()) < 4 * error
    assert abs(solved(task, batch) - task.optimum()) < 5 * error
