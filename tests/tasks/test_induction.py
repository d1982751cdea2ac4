from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import Batch
from linbench.tasks.induction import Induction
from tests.helpers.tasks import assert_refused, build_task, sample

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]


build = partial(build_task, Induction)


@pytest.mark.parametrize(
    "values",
    [{}, {"seq_len": 4, "vocab_size": 3}, {"seq_len": 256}, {"early": 1.0, "seq_len": 9}, {"early": 0.01}],
)
def test_the_special_token_stands_twice(values: dict[str, Any]) -> None:
    task = build(**values)
    batch = sample(task, 500)
    T = task.seq_len
    special = batch.inputs == 0
    assert (special.sum(dim=1) == 2).all()
    first = special.long().argmax(dim=1)
    assert special[:, -1].all()
    assert first.max() < T - 2
    assert first.max() < max(1, round(task.settings.early * T))
    assert torch.equal(batch.positions, torch.full((500, 1), T - 1))
    assert torch.equal(batch.targets[:, 0], batch.inputs[torch.arange(500), first + 1])
    assert torch.equal(batch.slices["distance"][:, 0], T - 1 - first)
    assert batch.targets.min() >= 1


def test_a_hand_made_sequence() -> None:
    inputs = torch.tensor([[5, 5, 0, 7, 5, 1, 7, 0], [0, 3, 1, 1, 1, 1, 1, 0]])
    batch = Batch(inputs, torch.full((2, 1), 7), torch.zeros(2, 1, dtype=torch.int64), {})
    assert build(seq_len=8).solve(batch).flatten().tolist() == [7, 3]


@pytest.mark.parametrize(("early", "places"), [(0.5, 12), (0.25, 6), (1.0, 22)])
def test_early_places_are_as_likely(chi_squared: Probability, early: float, places: int) -> None:
    first = (sample(build(seq_len=24, early=early), N).inputs == 0).long().argmax(dim=1)
    assert chi_squared(first.bincount(minlength=places), torch.full((places,), N / places)) > ALPHA


def test_ordinary_tokens_are_as_likely(chi_squared: Probability) -> None:
    batch = sample(build(vocab_size=6, early=0.1), N)
    for tokens in (batch.targets[:, 0], batch.inputs[:, 40]):
        assert chi_squared(tokens.bincount(minlength=6)[1:], torch.full((5,), N / 5)) > ALPHA


def test_chance_and_tokens() -> None:
    task = build(vocab_size=6)
    assert task.chance() == 1 / 5
    assert task.io == IO(6, 6)
    assert task.longer(4) == {"seq_len": 256}


def test_the_published_preset_is_as_published() -> None:
    preset = Induction.presets["mamba"]
    task = build(**preset.task)
    assert (task.seq_len, task.io.vocab_in) == (256, 16)
    assert preset.protocol["tokens"] / preset.protocol["batch_size"] / task.seq_len == 204_800


def test_the_special_token_stands_anywhere_as_published(chi_squared: Probability) -> None:
    """Preset `seq-icl` has it at each place but the last three of 31, among 18 ordinary tokens."""
    task = build(**Induction.presets["seq-icl"].task)
    batch = sample(task, N, "test")
    first = (batch.inputs == 0).long().argmax(dim=1)
    assert batch.inputs.shape == (N, 31)
    assert chi_squared(first.bincount(minlength=28), torch.full((28,), N / 28)) > ALPHA
    assert chi_squared(batch.targets[:, -1].bincount(minlength=20)[1:19], torch.full((18,), N / 18)) > ALPHA
    assert task.io == IO(20, 20)
    assert task.chance() == 1 / 18
    assert not batch.is_answer[:, :-1].any()
    trained = sample(task, 10)
    assert torch.equal(trained.targets[:, :-1], trained.inputs[:, 1:])
    later = build(**Induction.presets["seq-icl-2024"].task)
    places = (sample(later, N).inputs == 0).long().argmax(dim=1)
    assert (int(places.max()), later.seq_len, later.settings.ordinary) == (253, 257, 14)


def test_older_cells_keep_their_identity() -> None:
    assert build().settings.identity() == {"seq_len": 64, "vocab_size": 16, "early": 0.5}


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"unused": 14}, "16 unused 14 3 vocab_size 17"),
        ({"seq_len": 3}, "seq_len 3 4"),
        ({"vocab_size": 2}, "vocab_size 2 3"),
        ({"early": 0}, "early 0"),
        ({"early": 1.5}, "early 1.5 1"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Induction, values, facts)


def test_explain_says_where_and_what() -> None:
    task = build(seq_len=4096)
    batch = sample(task, 1)
    text = task.explain(batch, 0)
    first = 4095 - int(batch.slices["distance"])
    assert f"positions {first} and 4095" in text
    assert f"followed by {int(batch.targets)}" in text
    assert f" 0 {int(batch.targets)} " in text
    assert len(text) < 400
