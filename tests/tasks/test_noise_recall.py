from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.noise_recall import ASK, INERT, KEYS, MARK, SET, NoiseRecall
from tests.helpers.tasks import assert_refused, build_task, sample

N = 20_000
ALPHA = 1e-3
KINDS = ["inert", "zipf", "decoys", "marked"]
Probability = Callable[..., float]


build = partial(build_task, NoiseRecall)


def facts_of(task: NoiseRecall, tokens: list[int], batch: Batch, row: int) -> list[tuple[int, int, int]]:
    """(start, key, value) of the facts that are asked for, found by where `distance` says that they stand."""
    starts = [
        at - back - 1
        for at, back in zip(
            batch.positions[row].tolist(), batch.slices["distance"][row].tolist(), strict=True
        )
    ]
    assert all(tokens[start] == SET for start in starts)
    return [(start, tokens[start + 1], tokens[start + 2]) for start in starts]


def noise_of(task: NoiseRecall, batch: Batch) -> Tensor:
    """[B, noise], where all facts are asked for."""
    starts = batch.positions - batch.slices["distance"] - 1
    is_noise = torch.ones_like(batch.inputs, dtype=torch.bool)
    for part in range(3):
        is_noise = is_noise.scatter(1, starts + part, False)
    is_noise[:, -2 * task.settings.asked :] = False
    return batch.inputs[is_noise].view(len(batch.inputs), task.settings.noise)


@pytest.mark.parametrize("depth", [None, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_facts_then_questions_in_any_order(kind: str, depth: float | None) -> None:
    task = build(kind=kind, depth=depth, facts=3, asked=3, noise=20, keys=5, values=6)
    batch = sample(task, 200)
    assert task.seq_len == 3 * 3 + 20 + 2 * 3
    for row in range(200):
        tokens = batch.inputs[row].tolist()
        facts = facts_of(task, tokens, batch, row)
        assert sorted(start for start, _, _ in facts) == [
            facts[batch.slices["fact"][row].tolist().index(j)][0] for j in range(3)
        ]
        assert len({key for _, key, _ in facts}) == 3
        assert tokens[-6:] == [token for _, key, _ in facts for token in (ASK, key)]
        assert batch.positions[row].tolist() == [30, 32, 34]
        assert batch.targets[row].tolist() == [value for _, _, value in facts]
        assert all(KEYS <= key < KEYS + 5 <= value < KEYS + 11 for _, key, value in facts)
        if depth == 0:
            # 20 = 2 + 6 * 3
            assert min(start for start, _, _ in facts) == (2 if kind in {"decoys", "marked"} else 0)
        if depth == 1:
            assert max(start for start, _, _ in facts) == 20 + 6
        units, rest = (6, 2) if kind in {"decoys", "marked"} else (20, 0)
        for (start, _, _), fact, tenth in zip(
            facts, batch.slices["fact"][row].tolist(), batch.slices["depth"][row].tolist(), strict=True
        ):
            assert tenth == int(10 * (start - 3 * fact - rest) / (20 - rest) + 0.5)
            assert (start - 3 * fact - rest) % (20 // units) == 0


def test_inert_noise_is_one_token() -> None:
    task = build(kind="inert", facts=2, asked=2, noise=10)
    assert (noise_of(task, sample(task, 100)) == INERT).all()


def test_random_words_follow_the_power_law(chi_squared: Probability) -> None:
    task = build(kind="zipf", facts=1, noise=3, words=9, exponent=1.2, keys=3, values=4)
    noise = noise_of(task, sample(task, N))
    weights = torch.arange(1, 10, dtype=torch.float64) ** -1.2
    for place in range(3):
        assert (
            chi_squared((noise[:, place] - KEYS - 7).bincount(minlength=9), N * weights / weights.sum())
            > ALPHA
        )


@pytest.mark.parametrize("kind", ["decoys", "marked"])
def test_decoys_are_written_as_facts_are_but_of_other_keys(kind: str) -> None:
    task = build(kind=kind, facts=3, asked=3, noise=32, keys=6, values=4)
    batch = sample(task, 300)
    noise = noise_of(task, batch)
    assert (noise[:, :2] == INERT).all()
    decoys = noise[:, 2:].view(300, 10, 3)
    assert (decoys[:, :, 0] == (SET if kind == "decoys" else MARK)).all()
    keys = batch.inputs.gather(1, batch.positions)
    assert not (decoys[:, :, 1, None] == keys[:, None]).any()
    assert ((decoys[:, :, 1] >= KEYS) & (decoys[:, :, 1] < KEYS + 6)).all()
    assert ((decoys[:, :, 2] >= KEYS + 6) & (decoys[:, :, 2] < KEYS + 10)).all()


def test_decoys_are_uniform_over_what_is_left(chi_squared: Probability) -> None:
    task = build(kind="decoys", facts=1, noise=3, keys=4, values=3)
    batch = sample(task, N)
    decoy = noise_of(task, batch)
    asked = batch.inputs.gather(1, batch.positions)[:, 0]
    pairs = [4 * int(a) + int(b) for a in range(4) for b in range(4) if a != b]
    assert (
        chi_squared(
            (4 * (asked - KEYS) + decoy[:, 1] - KEYS).bincount(minlength=16)[pairs], torch.full((12,), N / 12)
        )
        > ALPHA
    )
    assert chi_squared((decoy[:, 2] - KEYS - 4).bincount(minlength=3), torch.full((3,), N / 3)) > ALPHA


def test_decoys_of_words_share_nothing_with_facts() -> None:
    task = build(kind="marked", decoy_pool="words", facts=2, asked=2, noise=30, keys=2, values=4, words=5)
    decoys = noise_of(task, sample(task, 200)).view(200, 10, 3)
    assert (decoys[:, :, 0] == MARK).all()
    for part in (1, 2):
        assert set(decoys[:, :, part].flatten().tolist()) == set(range(KEYS + 6, KEYS + 11))


def test_keys_values_questions_and_depths_are_uniform(chi_squared: Probability) -> None:
    batch = sample(build(kind="inert", facts=3, noise=8, keys=5, values=4), N)
    keys = batch.inputs.gather(1, batch.positions)[:, 0] - KEYS
    assert chi_squared(keys.bincount(minlength=5), torch.full((5,), N / 5)) > ALPHA
    assert (
        chi_squared((batch.targets[:, 0] - KEYS - 5).bincount(minlength=4), torch.full((4,), N / 4)) > ALPHA
    )
    assert chi_squared(batch.slices["fact"][:, 0].bincount(minlength=3), torch.full((3,), N / 3)) > ALPHA
    batch = sample(build(kind="inert", facts=1, noise=10, keys=2), N)
    assert chi_squared(batch.slices["depth"][:, 0].bincount(minlength=11), torch.full((11,), N / 11)) > ALPHA


def test_one_vocabulary_for_all_kinds_of_noise() -> None:
    assert len({build(kind=kind).io for kind in KINDS}) == 1


def test_longer_is_more_noise_and_the_same_facts() -> None:
    task = build(noise=256, asked=4, kind="zipf")
    longer = build(asked=4, kind="zipf", **task.longer(16))
    assert (longer.settings.noise, longer.settings.facts, longer.answers) == (4096, 4, 4)


def test_a_few_examples_are_all_that_one_fact_in_inert_noise_leaves() -> None:
    task = build(kind="inert", facts=1, keys=2, values=3, noise=4)
    train, test = (
        {tuple(row) for row in sample(task, 1000, split=split).inputs.tolist()} for split in ("train", "test")
    )
    assert train == test
    assert len(train) == 2 * 3 * 5


def test_the_solver_reads_the_fact_whose_key_is_asked_for() -> None:
    task = build(kind="decoys", facts=2, asked=2, noise=3, keys=4, values=4)
    inputs = torch.tensor([[SET, 5, 8, SET, 4, 11, SET, 7, 9, ASK, 7, ASK, 5]])
    positions = torch.tensor([[10, 12]])
    assert task.solve(Batch(inputs, positions, torch.full((1, 2), IGNORE), {})).tolist() == [[9, 8]]


def test_accuracy_by_depth_distance_and_fact() -> None:
    task = build(facts=2, asked=2, noise=30)
    batch = sample(task, 40)
    answers = batch.targets.clone()
    answers[:, 1] = 0
    scores = task.score(batch, Prediction(answers, torch.zeros(40, 2)))
    assert [float(x) for x in scores["accuracy"]] == [40, 80]
    for name, size in {"depth": 11, "distance": task.seq_len, "fact": 2}.items():
        right, due = scores[f"accuracy/{name}"]
        assert torch.equal(right.long(), batch.slices[name][:, 0].bincount(minlength=size))
        assert torch.equal(due.long(), batch.slices[name].flatten().bincount(minlength=size))
    assert task.chance() == pytest.approx((1 + 1 / 32) / 2)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"facts": 2, "asked": 3}, "asked facts 3 2"),
        ({"facts": 9, "keys": 8}, "9 facts keys 8"),
        ({"facts": 8, "keys": 8}, "keys 8 facts decoy_pool words"),
        ({"depth": 1.5}, "depth 1.5 1"),
        ({"kind": "white"}, "kind"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(NoiseRecall, values, facts)


@pytest.mark.parametrize("facts", [4, 30])
def test_explain_names_facts_and_answers(facts: int) -> None:
    task = build(facts=facts, asked=facts, noise=60)
    batch = sample(task, 2)
    text = task.explain(batch, 1)
    key, value = int(batch.inputs[1, batch.positions[1, 0]]), int(batch.targets[1, 0])
    assert (
        f"at position {int(batch.positions[1, 0])} ends `ASK {key}`, and {value} is due, for `SET {key}"
        f" {value}` begins at " in text
    )
    assert len(text) < 1500
    assert ("18 more" in text) == (facts == 30)
