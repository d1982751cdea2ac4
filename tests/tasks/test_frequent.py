from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction
from linbench.tasks.frequent import ASK, Frequent
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

N = 4000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "quick": {},
    "list": dict(Frequent.presets["list"].task),
    "smallest": {"pool": 3, "words": 2, "base": 1, "gap": 1},
    "odd": {"pool": 5, "words": 5, "common": 4, "base": 2, "gap": 3},
}

build = partial(build_task, Frequent)
task = task_fixture(Frequent, SETTINGS)


def test_every_row_is_counted_by_hand(task: Frequent) -> None:
    s = task.settings
    batch = sample(task, 30)
    assert task.io == IO(1 + s.pool, 1 + s.pool)
    for row in range(30):
        tokens, targets = batch.inputs[row].tolist(), batch.targets[row].tolist()
        text, half = tokens[: s.text], s.text - s.text // 2
        counts = Counter(text)  # in the order of appearance
        assert tokens[s.text :] == [ASK, *targets[:-1]]
        assert sorted(counts.values()) == [s.base] * (s.words - s.common) + [s.base + s.gap] * s.common
        assert targets == [word for word, count in counts.items() if count == s.base + s.gap]
        assert batch.positions[row].tolist() == list(range(s.text, s.text + s.common))
        assert batch.slices["late"][row].tolist() == [text[half:].count(word) for word in targets]
        assert batch.slices["place"][row].tolist() == list(range(s.common))
    assert torch.equal(task.solve(batch), batch.targets)


def test_words_and_their_order_are_even(chi_squared: Callable[..., float]) -> None:
    batch = sample(build(), N)
    assert chi_squared(batch.targets[:, 0].bincount(minlength=33)[1:], torch.full((32,), N / 32)) > ALPHA
    where = (batch.inputs[:, :58] == batch.targets).sum(dim=0)
    assert where.sum() == 9 * N
    assert chi_squared(where, torch.full((58,), 9 * N / 58)) > ALPHA


def commonest(text: torch.Tensor, size: int) -> torch.Tensor:
    """The commonest word of each row, any one of several."""
    chosen = torch.rand(len(text), size, generator=torch.Generator().manual_seed(0))
    return chosen.scatter_add(1, text, torch.ones(text.shape)).argmax(dim=1)


@pytest.mark.parametrize(
    ("values", "half"),
    [
        ({"base": 3}, 0.42),
        ({"gap": 1}, 0.21),
        ({}, 0.315),
        ({"base": 6, "gap": 4}, 0.56),
        ({"words": 16}, 0.21),
    ],
)
def test_what_little_of_a_sequence_tells(values: dict[str, Any], half: float) -> None:
    """The first and the last word are common ones in as many cases as there are of them; half of all words
    tell more, the second as much as the first."""
    task = build(**values)
    s = task.settings
    batch = sample(task, N)
    answer, text = batch.targets[:, 0], batch.inputs[:, : s.text]
    middle, end = s.text // 2, s.text - s.text // 2
    for part, expected in (
        (text[:, 0], (s.base + s.gap) / s.text),
        (text[:, -1], (s.base + s.gap) / s.text),
        (commonest(text[:, :middle], 33), half),
        (commonest(text[:, end:], 33), half),
    ):
        assert float((part == answer).double().mean()) == pytest.approx(expected, abs=0.025)


def test_a_hand_made_sequence_and_its_score() -> None:
    """Words 4 and 2 stand three times; 2 appears first."""
    task = build(pool=4, words=3, common=2, base=1, gap=2)
    text = torch.tensor([[3, 2, 4, 4, 2, 2, 4, ASK, 2]])
    place = torch.tensor([[0, 1]])
    batch = Batch(text, 7 + place, torch.tensor([[2, 4]]), {"late": 0 * place, "place": place})
    assert task.solve(batch).tolist() == [[2, 4]]
    found = task.score(batch, Prediction(torch.tensor([[2, 2]]), torch.zeros(1, 2)))
    assert [float(x) for x in found["accuracy"]] == [1, 2]
    assert [float(x) for x in found["exact"]] == [0, 1]
    explained = task.explain(batch, 0)
    for said in ("3 1 times, 2 3 times, 4 3 times", "From position 7 on", "the answer is 2, then 4"):
        assert said in explained


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"words": 33}, "pool words 33 32"),
        ({"common": 8}, "common 8 words 7"),
        ({"gap": 0}, "gap 0 1"),
        ({"base": 0}, "base 0 1"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Frequent, values, facts)
