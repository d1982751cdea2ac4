"""Mixtures: what each step trains on, and that nothing but this is special about them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from linbench.engine import cuda_graph as capture
from linbench.engine import step as what
from linbench.engine.progress import Report
from linbench.engine.stack import Stack
from linbench.engine.step import Training
from linbench.engine.train import train
from linbench.experiments.cell import Cell
from linbench.experiments.curriculum import Curriculum
from tests.helpers.cells import plan

TRAIN = (
    {"seq_len": 8, "kv_pairs": 2, "examples": 10},
    {"seq_len": 32, "kv_pairs": 2, "examples": 18},
    {"seq_len": 16, "kv_pairs": 4, "examples": 3},
)
ORDER = [0, 0, 0, 1, 1, 1, 1, 1, 2]
"""The segment of each batch of 4 in an epoch.

Segments have 10, 18 and 3 examples, and the last batch of each is filled up.
"""

TINY = {
    "protocol.batch_size": 4,
    "protocol.epochs": 3,
    "protocol.validation_examples": 8,
    "protocol.test_examples": 8,
    "protocol.evaluations": 5,
    "model.d_model": 16,
    "task.vocab_size": 18,
    "model.heads": 1,
}


def cells(
    model: str = "deltanet",
    seeds: Sequence[int] = (0,),
    train: Sequence[dict[str, Any]] = TRAIN,
    device: str = "cpu",
    **settings: Any,
) -> list[Cell]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return plan("mqar", [model], device=device, seeds=seeds, settings=TINY | named, train=train)


def begun(group: Sequence[Cell], dtype: torch.dtype = torch.float32) -> Training:
    models = [cell.model.build(cell.task, seed=cell.seed).to(cell.device, dtype) for cell in group]
    rules = models[0].parameter_rules()
    return Training.start(Stack.of(models), group, rules)


def trained(group: Sequence[Cell], dtype: torch.dtype = torch.float32) -> tuple[list[Report], Training]:
    """All reports, and the training at its end."""
    reports: list[Report] = []
    training = begun(group, dtype)
    for _ in train(training, reports.append):
        pass
    return reports, training


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The inputs [R, B, T] of every step."""
    inputs: list[Tensor] = []
    batch = what.BatchFeed.batch

    def watched(self: what.BatchFeed) -> Any:
        found = batch(self)
        inputs.append(found.inputs)
        return found

    monkeypatch.setattr(what.BatchFeed, "batch", watched)
    return inputs


def test_an_epoch_goes_through_the_segments_in_order_and_all_epochs_are_alike() -> None:
    (cell,) = cells()
    order = cell.curriculum
    assert [order.segment(step) for step in range(27)] == ORDER * 3
    assert cell.steps == 27


def test_batches_of_a_segment_are_counted_over_epochs() -> None:
    order = Curriculum((2, 4, 1), (1, 1, 1))
    for step in range(30):
        assert [order.before(number, step) for number in range(3)] == [
            [order.segment(s) for s in range(step)].count(number) for number in range(3)
        ]


@pytest.mark.parametrize(("examples", "batches"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_segment_has_as_many_batches_as_its_examples_fill(examples: int, batches: int) -> None:
    (cell,) = cells(train=[{"seq_len": 16, "kv_pairs": 2, "examples": examples}])
    assert cell.curriculum.batches == (batches,)


def test_tokens_are_those_that_were_seen() -> None:
    (cell,) = cells()
    each = [4 * (8, 32, 16)[number] for number in ORDER * 3]
    assert [cell.curriculum.tokens(steps) for steps in range(28)] == [
        sum(each[:steps]) for steps in range(28)
    ]
    _, training = trained([cell])
    assert [point["tokens"] for point in training.runs[0].curve] == [
        sum(each[:step]) for step in (5, 11, 16, 22, 27)
    ]
    assert training.trained == sum(each)


def test_what_is_no_mixture_counts_as_before() -> None:
    (cell,) = plan("mqar", ["deltanet"], device="cpu")
    assert (cell.curriculum.segment(7), cell.curriculum.before(0, 7), cell.curriculum.tokens(7)) == (
        0,
        7,
        7 * 32 * 64,
    )


@pytest.mark.slow
@pytest.mark.parametrize("alike", [False, True])
def test_a_fresh_mixture_has_new_examples_in_every_epoch(seen: list[Tensor], alike: bool) -> None:
    segment = {"seq_len": 16, "kv_pairs": 2}
    parts = [{**segment, "examples": 8}, {**segment, "examples": 12}] if alike else TRAIN
    (cell,) = cells(seeds=[5], protocol__fresh=True, train=parts)
    trained([cell])
    drawn = [tuple(row) for inputs in seen for row in inputs[0].tolist()]
    if alike:  # whole batches of one stream: every example comes once, and none is left out
        assert len(drawn) == 3 * 20
        stream = cell.segments[0].task.sample(torch.arange(60), seed=5, split="train").inputs
        assert drawn == [tuple(row) for row in stream.tolist()]
    size = len(drawn) // 3
    epochs = [drawn[start : start + size] for start in range(0, len(drawn), size)]
    assert len(set(map(tuple, epochs))) == 3


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_step_trains_on_the_fixed_set_of_its_segment(seen: list[Tensor], shuffle: bool) -> None:
    (cell,) = cells(seeds=[5], protocol__shuffle=shuffle)
    trained([cell])
    ranges = [range(10), range(10, 28), range(28, 31)]
    sets = [
        s.task.sample(torch.tensor(list(numbers)), seed=5, split="train").inputs.tolist()
        for s, numbers in zip(cell.segments, ranges, strict=True)
    ]
    numbers = [
        [sets[segment].index(row) for row in inputs[0].tolist()]
        for segment, inputs in zip(ORDER * 3, seen, strict=True)
    ]
    first, second, third = (numbers[start : start + 9] for start in (0, 9, 18))
    if not shuffle:
        assert first == second == third
        assert [number for batch in first[3:8] for number in batch] == [*range(18), 0, 1]
        assert first[8] == [0, 1, 2, 0], "a batch that is not full begins with its set again"
    else:
        assert len({tuple(map(tuple, epoch)) for epoch in (first, second, third)}) == 3
        assert all(
            len({number for batch in epoch[3:8] for number in batch}) == 18
            for epoch in (first, second, third)
        )


def test_segments_of_one_task_have_examples_of_their_own(seen: list[Tensor]) -> None:
    same = {"seq_len": 16, "kv_pairs": 4, "examples": 8}
    trained(cells(train=[same, same], protocol__epochs=1))
    assert len({tuple(row) for inputs in seen for row in inputs[0].tolist()}) == 16


def test_the_epoch_cosine_falls_at_the_end_of_the_epochs_of_a_mixture() -> None:
    (cell,) = cells(protocol__schedule="epoch_cosine", protocol__warmup=0.0)
    rates = begun([cell]).optimiser.rates
    assert rates.shares == pytest.approx(
        [0.5 * (1 + math.cos(math.pi * epoch / 3)) for epoch in range(3) for _ in range(9)]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", ["gated_deltanet", pytest.param("base_conv+attention", marks=pytest.mark.slow)]
)
def test_a_stack_finds_in_a_mixture_what_its_cells_find_alone(model: str) -> None:
    group = [
        replace(cell, protocol=cell.protocol.model_copy(update={"lr": lr}))
        for cell, lr in zip(cells(model, (0, 1, 1)), (1e-2, 3e-2, 2e-2), strict=True)
    ]
    _, together = trained(group, torch.float64)
    for cell, run in zip(group, together.runs, strict=True):
        _, alone = trained([cell], torch.float64)
        assert [point["loss"] for point in run.curve] == pytest.approx(
            [point["loss"] for point in alone.runs[0].curve], abs=1e-6
        )
        assert run.curve[0]["loss"] - run.curve[-1]["loss"] > 0.1, (
            "nothing was learned, so nothing was compared"
        )


@pytest.mark.slow
def test_the_rest_of_a_mixture_goes_on_where_it_was(seen: list[Tensor]) -> None:
    broken, sound = cells(protocol__lr=1e30)[0], cells(seeds=[1])[0]
    _, training = trained([broken, sound])
    assert [run.cell.seed for run in training.runs] == [1], "half of it was over and given up"
    together = [inputs[-1] for inputs in seen]
    seen.clear()
    trained([sound])
    assert all(torch.equal(one, other[0]) for one, other in zip(together, seen, strict=True))


@pytest.mark.gpu
def test_captured_segments_are_trained_on_as_called_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    group = cells(seeds=[0, 1], device="cuda:0")
    _, captured = trained(group)
    assert captured.note is None
    monkeypatch.setattr(capture, "WARMUP", 1000)
    _, called = trained(group)
    for one, other in zip(captured.runs, called.runs, strict=True):
        assert [point["loss"] for point in one.curve] == pytest.approx(
            [point["loss"] for point in other.curve], rel=1e-4
        )
