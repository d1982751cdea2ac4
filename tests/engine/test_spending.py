"""The time of a run by part, and the tokens that it trained on."""

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from linbench.engine.cuda_graph import WARMUP
from linbench.engine.ladder import run_ladders
from linbench.engine.measure import measure, training_context
from linbench.engine.meter import BUILDING, EVALUATION, FIRST_STEPS, PARTS, TRAINING, Meter
from linbench.engine.pool import make_pool
from linbench.engine.progress import NoProgress
from linbench.engine.runner import run_cells
from linbench.engine.schedule import stable_steps
from linbench.engine.spending import Spending
from linbench.engine.step import Step
from linbench.experiments.cell import Cell
from linbench.results.store import Store
from tests.helpers.cells import RecordingProgress, build_cells, tiny_settings

TINY = tiny_settings(20)


def planned_tokens(cells: Sequence[Cell]) -> int:
    return sum(cell.curriculum.tokens(cell.steps) for cell in cells)


def test_a_meter_counts_for_one_part_at_a_time() -> None:
    began, meter = time.perf_counter(), Meter()
    meter.turn_to(BUILDING)
    meter.turn_to(BUILDING)
    time.sleep(0.02)
    meter.turn_to(None)
    time.sleep(0.02)
    meter.turn_to(TRAINING)
    time.sleep(0.01)
    meter.turn_to(EVALUATION)
    meter.turn_to(None)
    all_seconds = time.perf_counter() - began
    assert meter.seconds[BUILDING] >= 0.02
    assert meter.seconds[TRAINING] >= 0.01
    assert meter.seconds[FIRST_STEPS] == 0.0
    assert sum(meter.seconds.values()) <= all_seconds - 0.02


@pytest.mark.slow
def test_a_run_tells_what_it_took(tmp_path: Path) -> None:
    cells = build_cells("deltanet", "attention", settings=TINY)
    heard = RecordingProgress()
    spending = Spending(heard)
    run_cells(cells, Store(tmp_path), spending)
    wall = spending.seconds
    assert spending.tokens == planned_tokens(cells)
    assert (spending.cells, spending.failed) == (4, 0)
    assert tuple(spending.parts) == PARTS
    assert min(spending.parts.values()) >= 0
    assert spending.parts[FIRST_STEPS] == 0, "a CPU captures nothing"
    assert min(spending.parts[part] for part in PARTS if part != FIRST_STEPS) > 0
    assert sum(spending.parts.values()) <= wall
    assert sorted(heard.done_ids) == sorted(cell.id for cell in cells), "all is passed on"
    assert [len(group) for group in heard.groups_over] == [2, 2]

    again = Spending(NoProgress())
    run_cells(cells, Store(tmp_path), again)
    assert (again.cells, again.tokens, sum(again.parts.values())) == (0, 0, 0.0)


@pytest.mark.slow
def test_workers_tell_it_too(tmp_path: Path) -> None:
    cells = build_cells("deltanet", "attention", settings=TINY)
    spending = Spending(NoProgress())
    run_cells(cells, Store(tmp_path), spending, executor=make_pool("cpu", 2))
    assert spending.tokens == planned_tokens(cells)
    assert 0 < sum(spending.parts.values()) <= 2 * spending.seconds


def test_steps_that_compile_and_capture_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, meter = build_cells("deltanet", settings=TINY), Meter()
    with training_context(cells) as training:
        step = Step(training, 0, 0)
        assert not step.is_settling
        step.device = "cuda:0"
        told = []
        for step.run.calls in range(WARMUP + 3):
            told.append(step.is_settling)
    assert told == [True] * (WARMUP + 1) + [False] * 2
    monkeypatch.setattr(Step, "is_settling", property(lambda step: step.run.calls <= WARMUP))
    list(measure(cells, lambda report: None, meter=meter))
    assert meter.seconds[FIRST_STEPS] > 0
    assert meter.seconds[TRAINING] > 0


@pytest.mark.slow
def test_a_rung_counts_what_it_trained_itself(tmp_path: Path) -> None:
    settings = TINY | {"protocol.schedule": "wsd", "protocol.rungs": 3}
    (cell,) = build_cells("deltanet", seeds=[0], settings=settings)
    heard = RecordingProgress()
    spending = Spending(heard)
    run_ladders([cell], Store(tmp_path), spending)
    climbed = [cell.rung(number) for number in range(len(heard.done))]
    assert len(climbed) > 1
    # each rung goes on from where the rate of the one before began to fall
    own_steps = [climbed[0].steps] + [upper.steps - stable_steps(lower) for lower, upper in pairwise(climbed)]
    tokens_of_step = planned_tokens(climbed[:1]) // climbed[0].steps
    assert spending.tokens == sum(own_steps) * tokens_of_step < planned_tokens(climbed)


def test_what_fails_has_taken_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    steps_taken, take_step = [], Step.__call__

    def out_of_memory(step: Step) -> None:
        steps_taken.append(step)
        if len(steps_taken) == 3:
            raise RuntimeError("out of memory")
        take_step(step)

    monkeypatch.setattr(Step, "__call__", out_of_memory)
    cells, meter, began = build_cells("deltanet", settings=TINY), Meter(), time.perf_counter()
    results = list(measure(cells, lambda report: None, meter=meter))
    assert [result["stack"]["size"] for result in results] == [1, 1]
    assert sum(meter.seconds.values()) <= time.perf_counter() - began
    assert meter.tokens == planned_tokens(cells)
