import re
from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch._subclasses.fake_tensor import FakeTensorMode

from linbench.common.task_io import IO
from linbench.tasks.base import Prediction
from linbench.tasks.stacked_mqar import StackedMQAR
from tests.helpers.tasks import assert_refused, build_task, sample, solved, task_fixture

N = 20_000
ALPHA = 1e-3
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no room to spare": {"seq_len": 16, "kv_pairs": 8, "vocab_size": 16},
    "odd vocabulary": {"seq_len": 20, "kv_pairs": 3, "vocab_size": 7, "dim": 5},
    "smallest": {"seq_len": 2, "kv_pairs": 1, "vocab_size": 2, "dim": 2},
    "similar": {"similarity": 0.6, "cluster": 4, "dim": 64},
    "similar, more keys than dimensions": {"similarity": 0.9, "cluster": 2, "dim": 3},
    "all similar": {"similarity": 0.999, "cluster": 16, "dim": 16},
}
Probability = Callable[..., float]


build = partial(build_task, StackedMQAR)


task = task_fixture(StackedMQAR, SETTINGS)


def test_a_sequence_is_pairs_then_zeros_then_keys(task: StackedMQAR) -> None:
    s = task.settings
    batch = sample(task, 100)
    assert task.io == IO(None, (s.vocab_size + 1) // 2, d_in=2 * s.dim)
    assert task.chance() == 1 / (s.kv_pairs if s.kv_pairs > 1 else s.vocab_size // 2)
    assert task.slice_sizes() == {"distance": s.seq_len}
    keys, values = batch.inputs.split(s.dim, dim=2)
    assert (batch.inputs[:, : s.kv_pairs] != 0).all()
    assert not values[:, s.kv_pairs :].any()
    assert not keys[:, s.kv_pairs : s.seq_len - s.kv_pairs].any()
    asked = keys.gather(1, batch.positions[:, :, None].expand(-1, -1, s.dim))
    assert torch.equal(asked, keys[:, : s.kv_pairs])
    assert torch.equal(
        batch.positions.sort(dim=1).values, torch.arange(s.seq_len - s.kv_pairs, s.seq_len).expand(100, -1)
    )
    assert torch.equal(batch.slices["distance"], batch.positions - torch.arange(s.kv_pairs))
    assert all(len(set(row)) == s.kv_pairs for row in batch.targets.tolist())
    assert all(len(row.unique(dim=0)) == s.kv_pairs for row in asked)


@pytest.mark.parametrize("similarity", [0.0, 0.6, 0.999])
def test_similar_keys_have_the_cosine_of_their_cluster(similarity: float) -> None:
    batch = sample(build(similarity=similarity, cluster=4, dim=16), 50)
    keys, cluster = batch.inputs[:, :16, :16].double(), batch.facts["cluster"]
    same = cluster[:, :, None] == cluster[:, None]
    expected = similarity * same + (1 - similarity) * torch.eye(16)
    assert torch.allclose(keys @ keys.mT / 16, expected.double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dim", [64, 8])
def test_similar_keys_depend_on_their_own_example_only(dim: int) -> None:
    task = build(similarity=0.6, cluster=4, dim=dim)
    whole = sample(task, 40).inputs
    for row in (0, 17, 39):
        assert torch.equal(sample(task, 1, first=row).inputs[0], whole[row])
    assert torch.equal(sample(task, 3, first=8).inputs, whole[8:11])
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        drawn = task.sample(mode.from_tensor(torch.arange(3)), seed=0, split="train")
    assert drawn.inputs.shape == (3, 64, 2 * dim)


def test_values_and_queries_are_the_same_whatever_keys_are_alike() -> None:
    alike, other, table = (
        sample(build(dim=64, **more), 20)
        for more in ({"similarity": 0.9, "cluster": 4}, {"similarity": 0.0, "cluster": 4}, {})
    )
    for name in ("targets", "positions"):
        assert torch.equal(getattr(alike, name), getattr(table, name))
    assert torch.equal(alike.inputs[..., 64:], table.inputs[..., 64:])
    assert not torch.equal(alike.inputs, other.inputs)
    norms = alike.inputs[:, :16, :64].norm(dim=2)
    assert torch.allclose(norms, torch.tensor(8.0))


def test_a_wrong_answer_is_of_the_cluster_of_another_or_of_none() -> None:
    task = build(similarity=0.6, cluster=2, kv_pairs=4, seq_len=8, dim=8, vocab_size=12)
    batch = sample(task, 1)._replace(
        targets=torch.tensor([[0, 1, 2, 3]]), facts={"cluster": torch.tensor([[1, 0, 0, 1]])}
    )
    prediction = Prediction(torch.tensor([[3, 1, 0, 5]]), torch.zeros(1, 4))
    found = {
        name: (float(value), float(of))
        for name, (value, of) in task.score(batch, prediction).items()
        if "/" not in name
    }
    assert found == {
        "accuracy": (1, 4),
        "nll": (0, 4),
        "near": (1, 4),
        "far": (1, 4),
        "alien": (1, 4),
        "near_excess": (1, pytest.approx(2 / 3)),
    }
    assert "near" not in build().means(sample(build(), 1), solved(build(), sample(build(), 1)))


def test_older_cells_keep_their_identity() -> None:
    older = {"seq_len": 64, "kv_pairs": 16, "vocab_size": 256, "dim": 32, "embeddings": 0}
    assert build().settings.identity() == older
    similar = build(similarity=0.0, cluster=4).settings.identity()
    assert similar == {**older, "similarity": 0.0, "cluster": 4}


def test_a_value_has_one_vector_and_a_vector_one_number() -> None:
    """This holds in all examples, seeds and splits."""
    task = build(vocab_size=32, dim=4)
    batches = [sample(task, 200), sample(task, 200, seed=1), sample(task, 200, split="test")]
    numbers = torch.cat([batch.targets.flatten() for batch in batches])
    values = torch.cat([batch.inputs[:, :16, 4:].flatten(0, 1) for batch in batches])
    keys = torch.cat([batch.inputs[:, :16, :4].flatten(0, 1) for batch in batches])
    table = values.unique(dim=0)
    assert len(table) == len(keys.unique(dim=0)) == 16
    assert len(torch.cat([table, keys]).unique(dim=0)) == 32
    assert len(torch.cat([numbers[:, None], values], dim=1).unique(dim=0)) == 16


def test_embeddings_choose_another_table() -> None:
    tables = [
        sample(build(vocab_size=32, embeddings=number), 50).inputs[:, :16].flatten(0, 1).unique(dim=0)
        for number in (0, 1)
    ]
    assert not any((row == tables[1]).all(dim=1).any() for row in tables[0])
    first, second = (sample(build(embeddings=number), 50) for number in (0, 1))
    assert torch.equal(first.targets, second.targets)
    assert torch.equal(first.positions, second.positions)


def test_vectors_are_standard_normal(chi_squared: Probability) -> None:
    task = build(vocab_size=8192, dim=8, kv_pairs=32)
    vectors = sample(task, 2000).inputs[:, :32].reshape(-1, 8).unique(dim=0)
    assert len(vectors) == 8192, "no two are the same, and all are used"
    quantiles = torch.special.ndtri(torch.arange(1, 16, dtype=torch.float64) / 16)
    counts = torch.bucketize(vectors.double().flatten(), quantiles).bincount(minlength=16)
    assert chi_squared(counts, torch.full((16,), vectors.numel() / 16)) > ALPHA
    correlation = (vectors[:, :-1] * vectors[:, 1:]).mean()
    assert abs(correlation) < 4 / (8192 * 7) ** 0.5


def test_no_two_vectors_of_a_large_table_are_confused() -> None:
    task = build(vocab_size=65536, dim=2, kv_pairs=1, seq_len=2)
    batch = sample(task, 5000)
    assert torch.equal(task.solve(batch), batch.targets)


def test_keys_values_and_the_order_of_queries_are_any(chi_squared: Probability) -> None:
    batch = sample(build(vocab_size=7, kv_pairs=3, seq_len=8, dim=2), N)
    orders = [25 * a + 5 * b + c for a, b, c in permutations(range(3))]
    codes = ((batch.positions - 5) * torch.tensor([25, 5, 1])).sum(dim=1).bincount(minlength=125)
    assert chi_squared(codes[orders], torch.full((6,), N / 6)) > ALPHA
    for place in range(3):
        assert chi_squared(batch.targets[:, place].bincount(minlength=4), torch.full((4,), N / 4)) > ALPHA
        _, counts = batch.inputs[:, place, 0].unique(return_counts=True)
        assert chi_squared(counts, torch.full((3,), N / 3)) > ALPHA


def test_the_solver_reads_the_pairs_alone() -> None:
    task = build(kv_pairs=4, seq_len=12, dim=3)
    batch = sample(task, 50)
    swapped = batch.inputs.clone()
    swapped[:, :4, 3:] = swapped[:, :4, 3:].flip(1)
    assert torch.equal(task.solve(batch._replace(inputs=swapped)), batch.targets.flip(1))
    swapped = batch.inputs.clone()
    swapped[:, 8:] = swapped[:, 8:].flip(1)
    # whose key now stands where a pair's did
    other = (19 - batch.positions)[:, None, :] == batch.positions[:, :, None]
    assert torch.equal(
        task.solve(batch._replace(inputs=swapped)), batch.targets.gather(1, other.long().argmax(dim=1))
    )


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"seq_len": 31}, "16 32 seq_len 31"),
        ({"vocab_size": 31}, "16 32 31"),
        ({"dim": 1}, "dim 1 2"),
        ({"embeddings": -1}, "embeddings 1 0"),
        ({"similarity": -0.1, "cluster": 4}, "similarity 0.1 0"),
        ({"similarity": 1.0, "cluster": 4}, "similarity 1.0 0.999"),
        ({"similarity": 0.5}, "similarity cluster"),
        ({"cluster": 4}, "similarity cluster"),
        ({"similarity": 0.5, "cluster": 1}, "cluster 1 2"),
        ({"similarity": 0.5, "cluster": 5}, "cluster kv_pairs 16 5"),
        ({"similarity": 0.5, "cluster": 32}, "cluster kv_pairs 16 32"),
        ({"similarity": 0.5, "cluster": 4, "dim": 2}, "16 dim 3 2"),
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any], facts: str) -> None:
    assert_refused(StackedMQAR, values, facts)


def test_what_is_said_to_be_allowed_is() -> None:
    assert build(similarity=0.999, cluster=16, dim=3).answers == 16
    assert build(kv_pairs=2, similarity=0.5, cluster=2, dim=2).answers == 2
    assert build(seq_len=32, vocab_size=32).answers == 16


def test_explain_names_every_pair_and_every_answer(snapshot: SnapshotAssertion) -> None:
    task = build(kv_pairs=2, seq_len=7, vocab_size=4)
    batch = sample(task, 20)
    for row in range(20):
        at, target = batch.positions[row].tolist(), batch.targets[row].tolist()
        text = task.explain(batch, row)
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        keys = [0, 1] if numbers[:4] == [0, target[0], 1, target[1]] else [1, 0]
        asked = sorted((at[i], keys[i], target[i]) for i in range(2))
        assert numbers == [keys[0], target[0], keys[1], target[1], 3, *asked[0], *asked[1]]
        assert re.sub(r"\d+", "N", text) == snapshot(name="words")
    similar = build(kv_pairs=4, seq_len=10, similarity=0.5, cluster=2)
    text = similar.explain(sample(similar, 1), 0)
    assert text == snapshot(name="similar")
    assert "zeros" not in build(kv_pairs=8, seq_len=16).explain(sample(build(kv_pairs=8, seq_len=16), 1), 0)


def test_explain_stays_short() -> None:
    for preset in StackedMQAR.presets.values():
        task = build(**preset.task)
        assert len(task.explain(sample(task, 1), 0)) < 1500
