from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from linbench.common.task_io import IO
from linbench.experiments.plan_tasks import make_task
from linbench.tasks.base import IGNORE, Batch, Prediction
from linbench.tasks.forgetting_mqar import ForgettingMQAR
from tests.helpers.tasks import assert_refused, build_task, sample, task_fixture

N = 20_000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "zero": {"filler": "zero", "kv_pairs": 3, "updates": 2, "seq_len": 20},
    "published": {"filler": "published", "vocab_size": 32},
    "all updated, no room to spare": {"seq_len": 24, "kv_pairs": 4, "updates": 4, "vocab_size": 16},
    "odd vocabulary": {"seq_len": 32, "kv_pairs": 4, "updates": 1, "vocab_size": 11},
    "smallest": {"seq_len": 6, "kv_pairs": 1, "updates": 1, "vocab_size": 4},
}
Probability = Callable[..., float]


build = partial(build_task, ForgettingMQAR)


def by_hand() -> tuple[ForgettingMQAR, Batch]:
    """Keys 3, 1, 2 mean 10, 11, 12; then 2 means 13 and 3 means 9; all are asked for, the last first."""
    task = build(seq_len=18, kv_pairs=3, updates=2, vocab_size=16, filler="zero")
    inputs = torch.tensor([[3, 10, 1, 11, 2, 12, 2, 13, 3, 9, 2, 0, 1, 0, 0, 0, 3, 0]])
    slices = {
        "updated": torch.tensor([[1, 0, 1]]),
        "distance": torch.tensor([[8, 10, 4]]),
        "slot": torch.tensor([[3, 1, 0]]),
    }
    old = torch.tensor([[10, IGNORE, 12]])
    return task, Batch(
        inputs, torch.tensor([[16, 12, 10]]), torch.tensor([[9, 11, 13]]), slices, {"old": old}
    )


task = task_fixture(ForgettingMQAR, SETTINGS)


def test_a_sequence_is_pairs_then_updates_then_queries(task: ForgettingMQAR) -> None:
    s = task.settings
    batch = sample(task, 300)
    half, context = s.vocab_size // 2, 2 * (s.kv_pairs + s.updates)
    assert task.io == IO(s.vocab_size, s.vocab_size)
    assert task.slice_sizes() == {"updated": 2, "distance": s.seq_len, "slot": (s.seq_len - context) // 2}
    for row in range(300):
        tokens = batch.inputs[row].tolist()
        keys, values = tokens[: 2 * s.kv_pairs : 2], tokens[1:context:2]
        assert len(set(keys)) == s.kv_pairs
        assert 1 <= min(keys) <= max(keys) < half
        assert len(set(values)) == s.kv_pairs + s.updates
        assert half <= min(values) <= max(values) < s.vocab_size
        rewritten = tokens[2 * s.kv_pairs : context : 2]
        assert len(set(rewritten)) == s.updates
        assert set(rewritten) <= set(keys)
        seen: dict[int, list[int]] = {}
        for at in range(0, context, 2):
            seen.setdefault(tokens[at], []).append(at)
        for place, key in enumerate(keys):
            at, written = int(batch.positions[row, place]), seen[key]
            assert tokens[at] == key
            assert batch.targets[row, place] == tokens[written[-1] + 1]
            assert batch.slices["updated"][row, place] == len(written) - 1
            assert batch.slices["distance"][row, place] == at - written[-1]
            assert at == context + 2 * batch.slices["slot"][row, place]
            assert batch.facts["old"][row, place] == (tokens[written[0] + 1] if len(written) == 2 else IGNORE)
        assert len(set(batch.positions[row].tolist())) == s.kv_pairs


def test_which_keys_are_updated_in_which_order_is_uniform(chi_squared: Probability) -> None:
    task = build(kv_pairs=4, updates=2, seq_len=20)
    batch = sample(task, N)
    keys, rewritten = batch.inputs[:, :8:2], batch.inputs[:, 8:12:2]
    pair = (rewritten[:, :, None] == keys[:, None, :]).long().argmax(dim=2)
    counts = (4 * pair[:, 0] + pair[:, 1]).bincount(minlength=16)
    possible = ~torch.eye(4, dtype=torch.bool).flatten()
    assert not counts[~possible].any()
    assert chi_squared(counts[possible], torch.full((12,), N / 12)) > ALPHA


def test_a_new_value_is_any_but_the_keys_own_old_one(chi_squared: Probability) -> None:
    """The published generator keeps it from being that of another key."""
    batch = sample(build(kv_pairs=1, updates=1, seq_len=8, vocab_size=10), N)
    counts = (5 * (batch.facts["old"][:, 0] - 5) + batch.targets[:, 0] - 5).bincount(minlength=25)
    possible = ~torch.eye(5, dtype=torch.bool).flatten()
    assert not counts[~possible].any()
    assert chi_squared(counts[possible], torch.full((20,), N / 20)) > ALPHA


def test_the_first_slot_follows_the_power_law(chi_squared: Probability) -> None:
    slots = sample(build(seq_len=26, kv_pairs=2, updates=1, power_a=0.3), N).slices["slot"][:, 1]
    p = torch.arange(1, 11, dtype=torch.float64) ** -0.7
    p = p / p.sum()
    second = torch.stack(
        [sum((p[i] * p[j] / (1 - p[i]) for i in range(10) if i != j), torch.zeros(())) for j in range(10)]
    )
    assert chi_squared(slots.bincount(minlength=10), N * second) > ALPHA


def test_filler_is_as_it_is_called() -> None:
    def filler(kind: str) -> tuple[Batch, Tensor]:
        batch = sample(build(filler=kind, vocab_size=32), 2000)
        keys = batch.inputs[:, :16:2]
        return batch, (batch.inputs[:, :, None] == keys[:, None, :]).sum(dim=1) - 2 - batch.slices["updated"]

    zero, again = filler("zero")
    assert not again.any()
    assert torch.equal(zero.inputs.count_nonzero(dim=1), torch.full((2000,), 24 + 8))
    random, again = filler("random")
    assert not again.any()
    assert set(random.inputs[:, 24:].flatten().tolist()) == set(range(32))
    _, again = filler("published")
    assert (again >= 0).all()
    assert (again > 0).any(dim=1).double().mean() > 0.9


def test_the_solver_follows_an_example_by_hand() -> None:
    task, batch = by_hand()
    assert task.solve(batch).tolist() == [[9, 11, 13]]
    undone = batch.inputs.clone()
    undone[0, 8:10] = torch.tensor([2, 10])  # now 2 is written three times, and 3 once
    assert task.solve(batch._replace(inputs=undone)).tolist() == [[10, 11, 10]]


def test_stale_answers_are_the_old_values_of_updated_keys() -> None:
    task, batch = by_hand()
    for answers, right, stale in (
        ([9, 11, 13], 3, 0),
        ([10, 11, 13], 2, 1),
        ([10, 10, 12], 0, 2),  # the second is wrong, but its key was never rewritten
        ([12, 11, 9], 1, 0),
        ([0, 0, 8], 0, 0),
    ):
        scores = task.score(batch, Prediction(torch.tensor([answers]), torch.zeros(1, 3)))
        assert [float(x) for x in scores["accuracy"]] == [right, 3]
        assert [float(x) for x in scores["stale"]] == [stale, 2]
        assert scores["stale/updated"][0].tolist() == [0, stale]
        assert scores["stale/updated"][1].tolist() == [0, 2]
    assert scores.keys() == {"nll"} | {
        f"{name}{slice_}"
        for name in ("accuracy", "stale")
        for slice_ in ("", "/updated", "/distance", "/slot")
    }


def test_presets_are_the_published_settings() -> None:
    published = [(64, 4), (128, 9), (256, 16), (256, 25), (256, 36), (2048, 256)]
    assert list(ForgettingMQAR.presets) == [
        "quick",
        *(f"zoology-{length}-{pairs}" for length, pairs in published),
    ]
    for length, pairs in published:
        task, _, preset = make_task("forgetting_mqar", preset=f"zoology-{length}-{pairs}")
        assert (
            task.settings.seq_len,
            task.settings.kv_pairs,
            task.settings.updates,
            task.settings.vocab_size,
        ) == (length, pairs, 4, 8192)
        assert preset.protocol.get("examples") == {64: 100_000, 2048: None}.get(length, 20_000)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"seq_len": 63}, "seq_len 63 64"),
        ({"kv_pairs": 3}, "4 updates 3"),
        ({"seq_len": 38}, "8 4 updates kv_pairs 2 seq_len 40 38"),
        ({"vocab_size": 23}, "8 12 24 23"),
        ({"updates": 0}, "updates 0 1"),
        ({"filler": "noise"}, "filler"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(ForgettingMQAR, values, facts)


def test_what_is_said_to_be_allowed_is() -> None:
    assert build(seq_len=40, vocab_size=24).answers == 8


def test_explain_tells_pairs_updates_and_answers(snapshot: SnapshotAssertion) -> None:
    task, batch = by_hand()
    assert task.explain(batch, 0) == snapshot


def test_explain_stays_short() -> None:
    task = build(**ForgettingMQAR.presets["zoology-2048-256"].task)
    text = task.explain(sample(task, 1), 0)
    assert len(text) < 1500
    assert text.count("and 244 more") == 2
