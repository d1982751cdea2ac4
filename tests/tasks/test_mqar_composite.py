"""Keys of several parts in `mqar`: what is near, what is asked, and what wrong answers are."""

from functools import partial

import pytest
import torch

from linbench.tasks.base import Batch, Prediction, WeightedMean
from linbench.tasks.mqar import MQAR
from tests.helpers.tasks import build_task, sample

build = partial(build_task, MQAR, kv_pairs=16, seq_len=160)


def by_hand() -> tuple[MQAR, Batch]:
    """Clusters 1 and 2, own parts 3 and 4: keys 1 3, 2 3, 2 4, 1 4 with values 10, 11, 12, 13."""
    task = build_task(
        MQAR, kv_pairs=4, seq_len=24, parts=2, shared=1, cluster=2, vocab_size=20, filler="zero"
    )
    inputs = torch.tensor([[1, 3, 10, 2, 3, 11, 2, 4, 12, 1, 4, 13, 2, 4, 0, 1, 3, 0, 1, 4, 0, 2, 3, 0]])
    near = torch.tensor([[13, 12, 11, 10]])[:, :, None, None]
    slices = {"distance": torch.tensor([[15, 18, 6, 9]]), "slot": torch.tensor([[1, 3, 0, 2]])}
    positions, targets = torch.tensor([[16, 22, 13, 19]]), torch.tensor([[10, 11, 12, 13]])
    return task, Batch(inputs, positions, targets, slices, {"near": near})


def means_of(answers: list[int]) -> dict[str, WeightedMean]:
    task, batch = by_hand()
    return task.means(batch, Prediction(torch.tensor([answers]), torch.zeros(1, 4)))


def ratio(mean: WeightedMean) -> float:
    assert mean.weight is not None
    return float(mean.value.double().sum() / mean.weight.sum())


def test_the_solver_matches_all_parts() -> None:
    task, batch = by_hand()
    assert torch.equal(task.solve(batch), batch.targets)
    other = batch.inputs.clone()
    other[0, 1], other[0, 10] = 4, 3  # the keys 1 3 and 1 4 change places, and so do their values
    assert task.solve(batch._replace(inputs=other)).tolist() == [[13, 11, 12, 10]]


@pytest.mark.parametrize(
    ("answers", "kinds"),
    [
        ([10, 11, 12, 13], ["accuracy"] * 4),
        ([13, 12, 11, 10], ["near"] * 4),
        ([11, 10, 10, 12], ["far"] * 4),
        ([12, 13, 13, 11], ["far"] * 4),
        ([1, 19, 0, 14], ["alien"] * 4),
        ([13, 10, 12, 3], ["near", "far", "accuracy", "alien"]),
    ],
)
def test_every_answer_is_of_one_kind(answers: list[int], kinds: list[str]) -> None:
    found = means_of(answers)
    for place, kind in enumerate(kinds):
        names = ("accuracy", "near", "far", "alien")
        assert [name for name in names if found[name].value[0, place]] == [kind]


def test_excess_of_near_values_by_hand() -> None:
    # one of three other keys is near
    assert ratio(means_of([13, 12, 11, 10])["near_excess"]) == pytest.approx(3)
    assert ratio(means_of([13, 10, 12, 3])["near_excess"]) == pytest.approx((1 / 2) / (1 / 3))
    assert ratio(means_of([11, 10, 12, 3])["near_excess"]) == 0


@pytest.mark.parametrize("shared", [0, 1, 2, 3])
def test_errors_at_random_have_no_excess_and_a_guess_within_the_cluster_scores_its_chance(
    shared: int,
) -> None:
    """Each other value of the sequence is answered in turn; then each value of the cluster."""
    task = build(parts=4, shared=shared)
    batch = sample(task, 8)
    near = batch.facts["near"][:, :, :, 0]
    turned = [
        task.means(batch, Prediction(batch.targets.roll(turn, dims=1), torch.zeros(8, 16)))["near_excess"]
        for turn in range(1, 16)
    ]
    assert sum(float(x.value.sum()) for x in turned) == 8 * 16 * 3
    assert sum(float(x.weight.sum()) for x in turned if x.weight is not None) == pytest.approx(8 * 16 * 3)
    found = task.means(batch, Prediction(near[:, :, 0], torch.zeros(8, 16)))
    assert found["near"].value.all()
    assert found["cluster_chance"].value.unique().tolist() == [1 / 4]
    cluster = torch.cat([batch.targets[:, :, None], near], dim=2)
    right = (cluster == batch.targets[:, :, None]).double().mean()
    assert right == 1 / 4


@pytest.mark.parametrize(("parts", "shared"), [(2, 1), (4, 1), (4, 3)])
def test_near_values_are_those_of_keys_with_the_same_first_parts(parts: int, shared: int) -> None:
    task = build(parts=parts, shared=shared)
    batch = sample(task, 20)
    pairs = batch.inputs[:, : task.context].unflatten(1, (16, parts + 1)).tolist()
    for row, near in zip(pairs, batch.facts["near"][:, :, :, 0].tolist(), strict=True):
        for (*key, value), values in zip(row, near, strict=True):
            others = {v for *k, v in row if k[:shared] == key[:shared] and v != value}
            assert set(values) == others
            assert len(others) == 3


def test_random_filler_is_no_part_of_a_key() -> None:
    task = build(parts=2, shared=1, seq_len=200)
    for row, positions in zip(*(x.tolist() for x in sample(task, 300)[:2]), strict=True):
        parts = {token for i in range(0, task.context, 3) for token in row[i : i + 2]}
        asked = {place for at in positions for place in (at - 1, at)}
        assert not parts & {row[t] for t in range(task.context, 200) if t not in asked}


def test_chance_is_that_of_keys_of_one_part_with_as_many_slots() -> None:
    of_parts = build(parts=4, shared=2, seq_len=160, power_a=0.5)
    assert of_parts.slots == 16
    assert of_parts.chance() == build_task(MQAR, kv_pairs=16, seq_len=64, power_a=0.5).chance()


def test_cells_from_before_there_were_parts_keep_their_identity() -> None:
    assert not {"parts", "shared", "cluster"} & build_task(MQAR).settings.identity().keys()
    assert build(parts=2).settings.identity()["parts"] == 2
