import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.common.task_io import IO
from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.mqar import MQAR
from tests.helpers.tasks import assert_refused, build_task, sample, solved, task_fixture

N = 20_000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"preset {name}": dict(preset.task) for name, preset in MQAR.presets.items()},
    "defaults": {},
    "published": {"filler": "published", "vocab_size": 32},
    "zero": {"filler": "zero", "kv_pairs": 3, "seq_len": 20},
    "uniform slots": {"power_a": 1, "kv_pairs": 4, "seq_len": 32},
    "late slots": {"power_a": 2, "kv_pairs": 4, "seq_len": 32},
    "odd vocabulary": {"vocab_size": 11, "kv_pairs": 3, "seq_len": 16},
    "no room to spare": {"seq_len": 16, "kv_pairs": 4},
    "no key to spare": {"vocab_size": 10, "kv_pairs": 4, "seq_len": 24},
    "no key to spare, odd": {"vocab_size": 11, "kv_pairs": 4, "seq_len": 16},
    "smallest": {"seq_len": 4, "kv_pairs": 1, "vocab_size": 4},
    "parts": {"parts": 2, "shared": 1, "cluster": 2, "seq_len": 61},
    "parts, zero": {"parts": 3, "shared": 1, "filler": "zero", "seq_len": 80},
    "parts, published": {"parts": 2, "shared": 1, "filler": "published", "vocab_size": 24, "seq_len": 60},
    "no room for parts to spare": {"parts": 2, "shared": 0, "vocab_size": 34, "seq_len": 48},
    "more values than parts": {"parts": 2, "shared": 1, "kv_pairs": 16, "vocab_size": 32, "seq_len": 96},
}
Probability = Callable[..., float]


build = partial(build_task, MQAR)


def same(a: Batch, b: Batch) -> bool:
    return a.slices.keys() == b.slices.keys() and all(
        torch.equal(x, y)
        for x, y in zip((*a[:3], *a.slices.values()), (*b[:3], *b.slices.values()), strict=True)
    )


def rows(batch: Batch, where: Tensor | slice) -> Batch:
    return Batch(
        batch.inputs[where],
        batch.positions[where],
        batch.targets[where],
        {name: x[where] for name, x in batch.slices.items()},
    )


task = task_fixture(MQAR, SETTINGS)


def test_a_row_depends_on_its_own_index_only(task: MQAR) -> None:
    whole = sample(task, 64)
    for row in (0, 1, 31, 63):
        assert same(task.sample(torch.tensor([row]), seed=0, split="train"), rows(whole, slice(row, row + 1)))
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    assert same(task.sample(order, seed=0, split="train"), rows(whole, order))
    assert same(task.sample(torch.arange(64), seed=torch.tensor(0), split="train"), whole)


def test_seeds_and_splits_differ() -> None:
    task = build()
    batches = [
        sample(task, 8, seed=seed, split=split)
        for seed in (0, 1)
        for split in ("train", "validation", "test")
    ]
    inputs = torch.cat([batch.inputs for batch in batches])
    assert len(inputs.unique(dim=0)) == len(inputs) == 48


def test_structure(task: MQAR) -> None:
    s, count = task.settings, 500
    batch = sample(task, count)
    half, slot = s.vocab_size // 2, s.parts + 1
    context = slot * s.kv_pairs
    assert batch.inputs.shape == (count, s.seq_len) == (count, task.seq_len)
    assert batch.positions.shape == batch.targets.shape == (count, s.kv_pairs) == (count, task.answers)
    assert all(x.dtype == torch.int64 for x in (*batch[:3], *batch.slices.values()))
    assert batch.inputs.min() >= 0
    assert batch.inputs.max() < s.vocab_size
    pairs = batch.inputs[:, :context].unflatten(1, (-1, slot))
    keys, values = pairs[:, :, :-1], pairs[:, :, -1]
    for tokens, first, end in ((keys, 1, half), (values, half, s.vocab_size)):
        assert tokens.min() >= first
        assert tokens.max() < end
        assert all(len({str(x) for x in row}) == s.kv_pairs for row in tokens.tolist())
    assert all(len(set(row)) == s.key_law.tokens for row in keys.flatten(1).tolist())
    assert torch.equal(batch.targets, values)
    for part in range(s.parts):
        at = batch.positions - s.parts + 1 + part
        assert torch.equal(batch.inputs.gather(1, at), keys[:, :, part])
    assert torch.equal(batch.positions, context + slot * batch.slices["slot"] + s.parts - 1)
    last = slot * torch.arange(s.kv_pairs) + s.parts - 1
    assert torch.equal(batch.slices["distance"], batch.positions - last)
    assert all(len(set(row)) == s.kv_pairs for row in batch.positions.tolist())
    sizes = task.slice_sizes()
    assert sizes == {"distance": s.seq_len, "slot": (s.seq_len - context) // slot}
    assert batch.slices.keys() == sizes.keys()
    for name, size in sizes.items():
        assert batch.slices[name].min() >= 0
        assert batch.slices[name].max() < size
    assert task.io == IO(s.vocab_size, s.vocab_size)


def test_chance_knows_the_slot() -> None:
    """If there are two pairs and two slots, the first slot asks for the first pair with its share."""
    assert build(kv_pairs=2, seq_len=8, power_a=0.5).chance() == pytest.approx(1 / (1 + 0.5**0.5), rel=1e-4)
    assert build(kv_pairs=5, power_a=1).chance() == pytest.approx(1 / 5)
    assert build(kv_pairs=1, vocab_size=20).chance() == 1 / 10, (
        "there is one answer in the sequence, so it must not be read"
    )


def test_all_keys_values_and_slots_are_used() -> None:
    task = build(vocab_size=11, kv_pairs=2, seq_len=12)
    batch = sample(task, 2000)
    for pair in range(2):
        assert set(batch.inputs[:, 2 * pair].tolist()) == {1, 2, 3, 4}
        assert set(batch.targets[:, pair].tolist()) == {5, 6, 7, 8, 9, 10}
        assert set(batch.slices["slot"][:, pair].tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("power_a", [0.01, 0.1, 0.5, 1, 1.7, 2])
def test_the_first_slot_follows_the_power_law(chi_squared: Probability, power_a: float) -> None:
    task = build(seq_len=24, kv_pairs=2, power_a=power_a)
    slots = sample(task, N).slices["slot"][:, 0]
    weights = torch.arange(1, 11, dtype=torch.float64) ** (power_a - 1)
    assert chi_squared(slots.bincount(minlength=10), N * weights / weights.sum()) > ALPHA


def test_the_second_slot_is_drawn_from_those_that_are_left(chi_squared: Probability) -> None:
    slots = sample(build(seq_len=12, kv_pairs=2, power_a=0.01), N).slices["slot"]
    p = torch.arange(1, 5, dtype=torch.float64) ** -0.99
    p = p / p.sum()
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    expected = torch.stack([N * p[i] * p[j] / (1 - p[i]) for i, j in pairs])
    counts = torch.tensor([int((slots == torch.tensor(pair)).all(dim=1).sum()) for pair in pairs])
    assert chi_squared(counts, expected) > ALPHA


def filler_of(task: MQAR, batch: Batch) -> tuple[Tensor, Tensor]:
    """Tokens of the query region, and which of them are filler."""
    is_filler = torch.ones_like(batch.inputs, dtype=torch.bool)
    for part in range(task.settings.parts):
        is_filler.scatter_(1, batch.positions - part, False)
    return batch.inputs[:, task.context :], is_filler[:, task.context :]


def first_filler(task: MQAR, batch: Batch) -> Tensor:
    """One filler token per row, so that counts are independent."""
    tokens, is_filler = filler_of(task, batch)
    return tokens.gather(1, is_filler.long().argmax(dim=1, keepdim=True)).flatten()


@pytest.mark.parametrize(
    "name", [name for name, values in SETTINGS.items() if values.get("filler") == "zero"]
)
def test_zero_filler_is_zero(name: str) -> None:
    task = build(**SETTINGS[name])
    tokens, is_filler = filler_of(task, sample(task, 200))
    assert is_filler.any()
    assert not tokens[is_filler].any()
    assert tokens[~is_filler].all()


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"vocab_size": 10, "kv_pairs": 4, "seq_len": 24},
        {"vocab_size": 11, "kv_pairs": 3, "seq_len": 16},
        {"vocab_size": 40, "parts": 2, "seq_len": 96},
    ],
)
def test_random_filler_repeats_no_queried_key(values: dict[str, Any]) -> None:
    task = build(**values, filler="random") if values else build()
    assert task.settings.filler == "random"
    batch = sample(task, 5000)
    keys = batch.inputs[:, : task.context].unflatten(1, (-1, task.slot))[:, :, :-1].flatten(1)
    seen = (batch.inputs[:, :, None] == keys[:, None, :]).sum(dim=1)
    assert (seen == 2).all()


@pytest.mark.parametrize(
    "values",
    [{"vocab_size": 10, "kv_pairs": 4, "seq_len": 24}, {"vocab_size": 21, "kv_pairs": 3, "seq_len": 16}],
)
def test_random_filler_is_uniform_over_all_other_tokens(
    chi_squared: Probability, values: dict[str, Any]
) -> None:
    task = build(**values)
    s = task.settings
    keys = s.vocab_size // 2 - 1
    probability = torch.full((s.vocab_size,), 1 / (s.vocab_size - s.kv_pairs), dtype=torch.float64)
    probability[1 : keys + 1] *= (keys - s.kv_pairs) / keys
    counts = first_filler(task, sample(task, N)).bincount(minlength=s.vocab_size)
    possible = probability > 0
    assert not counts[~possible].any()
    assert chi_squared(counts[possible], N * probability[possible]) > ALPHA


def test_published_filler_is_any_token(chi_squared: Probability) -> None:
    task = build(filler="published", vocab_size=21, kv_pairs=3, seq_len=16)
    batch = sample(task, N)
    assert chi_squared(first_filler(task, batch).bincount(minlength=21), torch.full((21,), N / 21)) > ALPHA
    keys = batch.inputs[:, :6:2]
    seen = (batch.inputs[:, :, None] == keys[:, None, :]).sum(dim=1)
    assert (seen >= 2).all()
    assert (seen > 2).any(dim=1).double().mean() > 0.1


def test_the_solver_is_always_right(task: MQAR) -> None:
    batch = sample(task, 1000)
    right, counted = task.score(batch, solved(task, batch))["accuracy"]
    assert right == counted == 1000 * task.settings.kv_pairs


def test_the_solver_reads_the_pairs_alone() -> None:
    task = build()
    batch = sample(task, 50)
    swapped = batch.inputs.clone()
    swapped[:, 1:16:2] = swapped[:, 1:16:2].flip(1)
    assert torch.equal(task.solve(batch._replace(inputs=swapped)), batch.targets.flip(1))


def test_scores_of_batches_add_up() -> None:
    task = build(kv_pairs=4, seq_len=32)
    batch = sample(task, 60)
    noise = torch.Generator().manual_seed(0)
    guess = torch.where(torch.rand(60, 4, generator=noise) < 0.6, batch.targets, 0)
    prediction = Prediction(guess, torch.rand(60, 4, generator=noise))
    whole = task.score(batch, prediction)
    assert whole.keys() == {"accuracy", "nll", "accuracy/distance", "accuracy/slot"}
    parts = [
        task.score(rows(batch, part), Prediction(guess[part], prediction.loss[part]))
        for part in (slice(0, 1), slice(1, 33), slice(33, 60))
    ]
    for name, sums in whole.items():
        for place, expected in enumerate(sums):
            torch.testing.assert_close(sum(part[name][place] for part in parts), expected, rtol=1e-12, atol=0)
    assert whole["accuracy"][0] == (guess == batch.targets).sum()
    assert float(whole["nll"][0]) == pytest.approx(float(prediction.loss.double().sum()))
    for name, size in task.slice_sizes().items():
        right, counted = whole[f"accuracy/{name}"]
        assert right.shape == counted.shape == (size,)
        assert right.sum() == whole["accuracy"][0]
        for value in range(size):
            there = batch.slices[name] == value
            assert counted[value] == there.sum()
            assert right[value] == (there & (guess == batch.targets)).sum()


def test_places_that_are_not_due_do_not_count() -> None:
    task = build(kv_pairs=4, seq_len=32)
    batch = sample(task, 5)
    targets = batch.targets.clone()
    targets[:, 1] = IGNORE
    nll = torch.ones(5, 4).index_fill(1, torch.tensor([1]), float("nan"))
    scores = task.score(batch._replace(targets=targets), Prediction(targets, nll))
    assert [float(x) for x in (*scores["accuracy"], *scores["nll"])] == [15, 15, 15, 15]
    assert scores["accuracy/slot"][1].sum() == 15


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"seq_len": 63}, "seq_len 63 64"),
        ({"seq_len": 64, "kv_pairs": 20}, "20 4 kv_pairs seq_len 16 64 80"),
        ({"kv_pairs": 8, "vocab_size": 16}, "8 18 filler 16 7"),
        ({"kv_pairs": 4, "seq_len": 16, "vocab_size": 9}, "4 10 filler 9 3"),
        ({"power_a": 0}, "power_a 0"),
        ({"parts": 2, "shared": 2}, "shared parts 2"),
        ({"shared": 1}, "shared parts 1"),
        ({"parts": 2, "kv_pairs": 10}, "parts 2 4 kv_pairs cluster 8 10"),
        ({"parts": 2, "kv_pairs": 4}, "parts 2 4 kv_pairs cluster 8"),
        ({"parts": 2, "seq_len": 47}, "8 6 kv_pairs seq_len 7 47 48"),
        ({"parts": 2, "vocab_size": 33}, "8 16 34 filler 33 15 17"),
        ({"parts": 2, "shared": 1, "kv_pairs": 64, "cluster": 8, "vocab_size": 127, "seq_len": 400}, "128"),
        ({"power_a": 2.5}, "power_a 2.5 2"),
        ({"kv_pairs": 0}, "kv_pairs 0 1"),
        ({"filler": "noise"}, "filler"),
        ({"kv_pair": 8}, "kv_pair kv_pairs filler power_a seq_len vocab_size"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(MQAR, values, facts)


def test_strings_from_a_command_line_are_understood() -> None:
    assert (
        build(seq_len="32", kv_pairs="4", power_a="0.5").settings
        == build(seq_len=32, kv_pairs=4, power_a=0.5).settings
    )


def test_explain_names_every_pair_and_every_answer(task: MQAR) -> None:
    batch = sample(task, 2)
    text = task.explain(batch, 1)
    parts = task.settings.parts
    asked = re.findall(r"(\d+) stands? ([\d ]+), the answer (?:there|at \d+) is (\d+)", text)
    assert len(asked) == len(batch.targets[1])
    for j, value in enumerate(batch.targets[1].tolist()):
        key = " ".join(str(int(x)) for x in batch.inputs[1, task.slot * j :][:parts])
        assert f"{key} means {value}" in text
        assert (str(int(batch.positions[1, j])), key, str(value)) in asked
