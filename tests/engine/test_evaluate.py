"""Evaluations: what they give, and the number of examples of a split that are evaluated at a time."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from linbench.engine import evaluate
from linbench.engine.batches import Streams, replica
from linbench.engine.evaluate import EXAMPLES, HIDDEN, LOGITS, Evaluation, _batch_size
from linbench.engine.stack import Stack
from linbench.experiments.cell import Cell
from tests.helpers.cells import plan, tiny_settings
from tests.helpers.presets import SHIPPED_TASKS


def stacked(cells: Sequence[Cell]) -> Stack:
    return Stack.of([cell.model.build(cell.task, seed=cell.seed).to(cell.device) for cell in cells])


def test_scores_are_of_all_examples_however_they_are_divided_and_do_not_add_up_from_call_to_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = plan("mqar", ["deltanet"], device="cpu", seeds=[0, 1], settings=tiny_settings())
    stack = stacked(cells)
    (whole,) = (Evaluation(cells, "test", 11)(stack)[r].tests for r in (1,))
    monkeypatch.setattr(evaluate, "EXAMPLES", 4)
    in_parts = Evaluation(cells, "test", 11)
    first, second = in_parts(stack), in_parts(stack)
    assert first == second
    (of_parts,) = first[1].tests
    assert of_parts.slices == whole[0].slices
    assert of_parts.metrics == pytest.approx(whole[0].metrics)

    task = cells[1].task
    batch = replica(Streams(task, cells).draw(torch.arange(11), "test"), 1)
    with torch.no_grad():
        answers = cells[1].model.build(task, seed=1).eval()(batch.inputs, batch.positions).argmax(dim=-1)
    right = (answers == batch.targets)[batch.is_answer]
    assert of_parts.metrics["accuracy"] == pytest.approx(float(right.double().mean()))


@pytest.mark.gpu
@pytest.mark.parametrize("task", sorted(SHIPPED_TASKS))
def test_what_is_captured_scores_as_what_is_called(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"model.d_model": 32}
    cells = plan(task, ["deltanet"], device="cuda:0", seeds=[0, 1], settings=settings)
    stack = stacked(cells)
    monkeypatch.setattr(evaluate, "_batch_size", lambda *_: EXAMPLES)
    captured, called = (
        Evaluation(cells, "test", 4 * EXAMPLES + 3, note=note) for note in (None, "it is not asked for")
    )
    expected, found = called(stack), captured(stack)
    for one, other in zip(expected, found, strict=True):
        assert one.metrics == pytest.approx(other.metrics, rel=1e-6)
        assert [test.slices.keys() for test in one.tests] == [test.slices.keys() for test in other.tests]
    for test in captured.tests:
        assert test.scorer is not None
        assert [step.note for step in test.scorer.steps.values()] == [None, None]
        assert test.scorer.steps[EXAMPLES].graph is not None
    again = captured(stack)
    # sums of what is not whole are added in no fixed order
    assert [one.metrics for one in again] == [pytest.approx(one.metrics) for one in found]


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("task", ["mqar", "selective_copy"])
@pytest.mark.parametrize(("width", "settings"), [
    (256, {"seq_len": 768}),  # few answers to long sequences of wide models, which once filled a GPU
    (32, {"seq_len": 768, "vocab_size": 1 << 15}),
    (16, {"seq_len": 32}),
])  # fmt: skip
def test_neither_logits_nor_what_is_between_layers_fills_a_gpu(
    width: int, settings: dict[str, int], task: str, replicas: int
) -> None:
    given = (
        settings
        | {"mqar": {"kv_pairs": settings["seq_len"] // 16}, "selective_copy": {"num_tokens_to_copy": 2}}[task]
    )
    (cell,) = plan(
        task,
        ["deltanet"],
        device="cpu",
        seeds=[0],
        settings={f"task.{name}": value for name, value in given.items()},
    )
    unit = {"mqar": 1, "selective_copy": EXAMPLES}[task]  # the latter's macro accuracy is of whole batches
    examples = _batch_size(cell.task, SimpleNamespace(device="cuda", replicas=replicas), width)
    assert examples % unit == 0 < examples

    def fits(examples: int) -> bool:
        each = replicas * examples
        return (
            each * cell.task.answers * (cell.task.io.vocab_out or 1) <= LOGITS
            and each * cell.task.seq_len * width <= HIDDEN
        )

    assert examples == unit or fits(examples)
    assert not fits(examples + unit)
