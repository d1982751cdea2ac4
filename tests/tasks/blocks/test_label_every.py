"""Sparse supervision of tasks with running answers."""

from typing import Any

import pytest
import torch

from linbench.common.errors import UserError
from linbench.tasks.base import IGNORE, Batch, Task
from linbench.tasks.blocks.label_every import count_labelled, thin_labels
from linbench.tasks.dyck import Dyck
from linbench.tasks.flip_flop import FlipFlop
from linbench.tasks.group_word import GroupWord
from linbench.tasks.majority import Majority
from linbench.tasks.parity import Parity
from tests.helpers.tasks import build_task, sample

CASES: list[tuple[type[Task], dict[str, Any]]] = [
    (Parity, {"min_length": 2}),
    (Majority, {"min_length": 2}),
    (GroupWord, {"tokens_per_element": 2, "bos": True}),
    (FlipFlop, {"ignore": 0.5}),
    (Dyck, {"min_length": 2}),
]


@pytest.mark.parametrize(("cls", "values"), CASES, ids=lambda x: getattr(x, "name", ""))
def test_of_three_answers_the_last_one_has_a_label_in_training(
    cls: type[Task], values: dict[str, Any]
) -> None:
    dense, sparse = (build_task(cls, **values, label_every=every) for every in (1, 3))
    all_of_them, some = sample(dense, 64), sample(sparse, 64)
    assert torch.equal(all_of_them.inputs, some.inputs)
    for row in range(64):
        due, kept = all_of_them.is_answer[row], some.is_answer[row]
        expected = sorted(all_of_them.positions[row][due].tolist(), reverse=True)[::3]
        assert sorted(some.positions[row][kept].tolist(), reverse=True) == expected
        for a, b in ((all_of_them.targets, some.targets), *_slices(all_of_them, some)):
            assert torch.equal(a[row][kept], b[row][kept])
    unused = ~some.is_answer
    assert bool((some.targets[unused] == IGNORE).all())
    assert not some.positions[unused].any()
    assert sparse.explain(some, 0) != dense.explain(all_of_them, 0)


@pytest.mark.parametrize(("cls", "values"), CASES, ids=lambda x: getattr(x, "name", ""))
@pytest.mark.parametrize("split", ["validation", "test"])
def test_all_answers_are_judged(cls: type[Task], values: dict[str, Any], split: Any) -> None:
    dense, sparse = (sample(build_task(cls, **values, label_every=every), 8, split) for every in (1, 3))
    assert torch.equal(dense.targets, sparse.targets)


def test_the_setting_is_part_of_an_identity_only_where_labels_are_left_out() -> None:
    assert "label_every" not in build_task(Parity).settings.identity()
    assert build_task(Parity, label_every=2).settings.identity()["label_every"] == 2


@pytest.mark.parametrize(("cls", "answer"), [(Parity, "last"), (Majority, "last"), (GroupWord, "identity")])
def test_a_single_answer_keeps_its_label(cls: type[Task], answer: str) -> None:
    with pytest.raises(UserError, match=f"answer = {answer} has a single answer"):
        build_task(cls, answer=answer, label_every=2)


def test_a_row_without_answers_stays_without() -> None:
    batch = Batch(torch.zeros(1, 2), torch.zeros(1, 2).long(), torch.full((1, 2), IGNORE), {})
    assert not thin_labels(batch, 2, "train").is_answer.any()


def test_it_is_said_how_many_have_a_label() -> None:
    assert [count_labelled(8, 8), count_labelled(2, 8)] == ["each of the 8", "2 of the 8"]


def _slices(a: Batch, b: Batch) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(a.slices[name], b.slices[name]) for name in a.slices]
