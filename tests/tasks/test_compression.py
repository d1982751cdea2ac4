from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from linbench.common.task_io import IO
from linbench.tasks.base import Batch, Prediction
from linbench.tasks.compression import Compression
from tests.helpers.tasks import assert_refused, build_task, sample

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]


build = partial(build_task, Compression)


@pytest.mark.parametrize(
    "values", [{}, {"vocab_size": 3, "seq_len": 2}, {"vocab_size": 128}, {"seq_len": 256}]
)
def test_every_token_is_due_of_the_last_ones_vector(values: dict[str, Any]) -> None:
    task = build(**values)
    s, batch = task.settings, sample(task, 100)
    assert task.io == IO(s.vocab_size, s.vocab_size, readout="code")
    assert torch.equal(batch.targets, batch.inputs)
    assert torch.equal(batch.positions, torch.arange(s.seq_len).repeat(100, 1))
    assert torch.equal(batch.slices["distance"], s.seq_len - 1 - batch.positions)
    assert (batch.inputs[:, -1] == s.vocab_size - 1).all()
    assert batch.inputs[:, :-1].max() < s.vocab_size - 1


def test_tokens_are_uniform(chi_squared: Probability) -> None:
    tokens = sample(build(vocab_size=6, seq_len=3), N).inputs
    assert (
        chi_squared((tokens[:, 0] * 5 + tokens[:, 1]).bincount(minlength=25), torch.full((25,), N / 25))
        > ALPHA
    )


def test_chance_is_any_token_and_the_last_one() -> None:
    task = build(vocab_size=6, seq_len=8)
    batch = sample(task, 4000)
    guess = torch.full_like(batch.targets, 3)
    guess[:, -1] = 5
    right, counted = task.score(batch, Prediction(guess, torch.zeros(guess.shape)))["accuracy"]
    assert float(right / counted) == pytest.approx(task.chance(), abs=0.01)
    assert task.chance() == pytest.approx((1 + 7 / 5) / 8)


def test_the_solver_names_the_token_at_its_place() -> None:
    task = build(vocab_size=6, seq_len=4)
    batch = Batch(torch.tensor([[3, 0, 4, 5]]), torch.tensor([[2, 0, 3]]), torch.full((1, 3), -100), {})
    assert task.solve(batch).tolist() == [[4, 3, 5]]
    scores = build().score(
        sample(build(), 200), Prediction(build().solve(sample(build(), 200)), torch.zeros(200, 32))
    )
    assert scores["accuracy"] == (6400, 6400)
    assert scores["macro_accuracy"] == (2, 2)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"vocab_size": 2}, "vocab_size 2 3"),
        ({"seq_len": 1}, "seq_len 1 2"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(Compression, values, facts)


def test_an_example_in_words() -> None:
    task = build(seq_len=6)
    batch = sample(task, 1)
    text = task.explain(batch, 0)
    assert text.startswith("The sequence is " + " ".join(map(str, batch.inputs[0].tolist())))
    assert all(f"{target} for place {at}" in text for at, target in enumerate(batch.targets[0].tolist()))
    assert len(build(seq_len=256).explain(sample(build(seq_len=256), 1), 0)) < 1500
