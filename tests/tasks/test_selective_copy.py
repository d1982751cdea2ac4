from collections.abc import Callable
from functools import partial
from itertools import product
from math import comb
from typing import Any

import pytest
import torch

from linbench.common.errors import UserError
from linbench.experiments.protocol import Protocol, default_protocol
from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.selective_copy import SelectiveCopy
from tests.helpers.tasks import assert_refused, build_task, sample, unanswered

N = 20_000
ALPHA = 1e-3
Probability = Callable[..., float]
SETTINGS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "many tokens": {"num_tokens_to_copy": 96},
    "one blank": {"seq_len": 12, "num_tokens_to_copy": 5},
    "one token": {"seq_len": 10, "num_tokens_to_copy": 1},
    "two kinds": {"vocab_size": 4, "seq_len": 40, "num_tokens_to_copy": 7},
}


build = partial(build_task, SelectiveCopy)


@pytest.mark.parametrize("values", SETTINGS.values(), ids=SETTINGS)
def test_sequences_and_labels_are_as_published(values: dict[str, Any]) -> None:
    task = build(**values)
    s = task.settings
    batch, count, blank = sample(task, 200), s.num_tokens_to_copy, s.vocab_size - 2
    labels = zip(
        *(
            x.tolist()
            for x in (
                batch.inputs,
                batch.targets,
                batch.positions,
                batch.slices["order"],
                batch.slices["distance"],
            )
        ),
        strict=True,
    )
    for tokens, targets, positions, order, distance in labels:
        first, rest = tokens[: -count - 1], tokens[-count - 1 :]
        assert rest == [blank + 1] + [blank] * count
        places = [at for at, token in enumerate(first) if token != blank]
        assert [first[at] for at in places] == targets
        assert max(targets) < blank
        assert places[-1] == len(first) - 1, "no blank is put after the last token"
        assert positions == list(range(s.seq_len - count, s.seq_len))
        assert order == list(range(count))
        assert [position - d for position, d in zip(positions, distance, strict=True)] == places


def test_tokens_are_uniform(chi_squared: Probability) -> None:
    targets = sample(build(vocab_size=7, seq_len=9, num_tokens_to_copy=2), N).targets
    assert (
        chi_squared((targets[:, 0] * 5 + targets[:, 1]).bincount(minlength=25), torch.full((25,), N / 25))
        > ALPHA
    )


def test_each_blank_is_put_before_any_token_alike(chi_squared: Probability) -> None:
    """Four blanks among three tokens: how many stand before each is multinomial."""
    task = build(seq_len=11, num_tokens_to_copy=3)
    batch = sample(task, N)
    places = batch.positions - batch.slices["distance"]
    first, second = places[:, 0], places[:, 1] - places[:, 0] - 1
    cells = [(a, b) for a, b in product(range(5), repeat=2) if a + b <= 4]
    expected = torch.tensor([N * comb(4, a) * comb(4 - a, b) / 3**4 for a, b in cells], dtype=torch.float64)
    counts = torch.tensor([int(((first == a) & (second == b)).sum()) for a, b in cells])
    assert chi_squared(counts, expected) > ALPHA


def test_the_solver_leaves_out_the_blanks() -> None:
    task = build(vocab_size=6, seq_len=10, num_tokens_to_copy=3)
    tokens = torch.tensor([[4, 2, 4, 4, 0, 2, 5, 4, 4, 4]])
    batch = Batch(tokens, torch.tensor([[7, 8, 9]]), torch.full((1, 3), IGNORE), {})
    assert task.solve(batch).tolist() == [[2, 0, 2]]


@pytest.mark.parametrize("values", SETTINGS.values(), ids=SETTINGS)
def test_the_solver_is_always_right(values: dict[str, Any]) -> None:
    task = build(**values)
    batch = sample(task, 500)
    answers = task.solve(unanswered(batch))
    scores = task.score(batch, Prediction(answers, torch.zeros(answers.shape)))
    assert scores["accuracy"] == (500 * task.answers, 500 * task.answers)
    assert scores["macro_accuracy"] == (4, 4)


def test_chance_is_any_token() -> None:
    task = build(vocab_size=6)
    assert task.chance() == 1 / 4
    assert float((sample(task, 1000).targets == 2).double().mean()) == pytest.approx(task.chance(), abs=0.02)


def test_longer_ones_have_as_much_to_copy() -> None:
    task = build()
    assert (build(**task.longer(4)).seq_len, build(**task.longer(4)).answers) == (1024, 16)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"seq_len": 33}, "16 33 seq_len 34 num_tokens_to_copy 15"),
        ({"num_tokens_to_copy": 128}, "128 256 seq_len 258 num_tokens_to_copy 127"),
        ({"vocab_size": 3}, "vocab_size 3 4"),
        ({"num_tokens_to_copy": 0}, "num_tokens_to_copy 0 1"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(SelectiveCopy, values, facts)
    if "seq_len" in facts:  # the last number is the largest num_tokens_to_copy that is possible
        possible = int(facts.split()[-1])
        build(**{**values, "num_tokens_to_copy": possible})
        with pytest.raises(UserError):
            build(**{**values, "num_tokens_to_copy": possible + 1})


def test_mambas_setting_is_the_published_one() -> None:
    preset = SelectiveCopy.presets["mamba"]
    s, protocol = (
        build(**preset.task).settings,
        Protocol.parse({**default_protocol(), **preset.protocol}, where="protocol"),
    )
    assert (s.seq_len, s.vocab_size, s.num_tokens_to_copy) == (4096, 16, 16)
    assert preset.model == {"layers": 2, "d_model": 64}
    assert (protocol.steps(s.seq_len), protocol.batch_size, protocol.lr) == (400_000, 64, 1e-4)


def test_an_example_in_words() -> None:
    task = build(vocab_size=6, seq_len=12, num_tokens_to_copy=3)
    batch = sample(task, 1)
    text = task.explain(batch, 0)
    for at, target in enumerate(batch.targets[0].tolist()):
        assert f"{target} at position {9 + at}" in text
        assert f"{target} at position {int(batch.positions[0, at] - batch.slices['distance'][0, at])}" in text
    assert (
        len(
            build(seq_len=1024, num_tokens_to_copy=96).explain(
                sample(build(seq_len=1024, num_tokens_to_copy=96), 1), 0
            )
        )
        < 1500
    )
