from collections.abc import Callable

import pytest

from linbench.cell import Cell
from linbench.estimate import flops, rates, seconds
from linbench.plan import plan
from linbench.store import Result

Make = Callable[..., Result]


def cells(model: str = "deltanet", **settings: object) -> list[Cell]:
    return plan("mqar", [model], device="cpu", seeds=[0, 1], settings={name.replace("__", "."): value for name, value in settings.items()})


def finished(make: Make, label: str, *, per_second: float, **more: object) -> Result:
    """Trained at `per_second` floating-point operations."""
    tokens = 1000.0
    return make(label, curve=[{"tokens": tokens}], seconds=3 * 10 * tokens / per_second, **more)


def test_the_work_is_the_protocols_tokens_forward_and_twice_backward() -> None:
    (cell, _) = cells()
    per_token = cell.model.build(cell.task, seed=0).flops_per_token(cell.task.seq_len, cell.task.answers)
    assert per_token is not None
    assert flops(cell) == pytest.approx(3 * per_token * cell.steps * 32 * 64)
    assert flops(cells(protocol__tokens=4_915_200)[0]) == pytest.approx(4 * 3 * per_token * cell.steps * 32 * 64)


def test_a_mixture_is_as_much_work_as_it_has_tokens() -> None:
    train = [{"seq_len": 32, "kv_pairs": 4, "examples": 320}, {"examples": 64}]
    (cell,) = plan("mqar", ["deltanet"], device="cpu", settings={"protocol.epochs": 3}, train=train, test=[{"seq_len": 128, "kv_pairs": 16}, {}])
    per_token = cell.model.build(cell.task, seed=0).flops_per_token(128, 16)
    assert per_token is not None
    assert flops(cell) == pytest.approx(3 * per_token * 3 * (320 * 32 + 64 * 64))


def test_a_model_is_judged_by_its_own_speed_else_by_that_of_all(a_result: Make) -> None:
    work = flops(cells()[0])
    assert work is not None
    known = [finished(a_result, "deltanet", per_second=2e9), *(finished(a_result, name, per_second=1e9) for name in ("attention", "linear_attention", "gla"))]
    assert seconds(cells(), rates(known, "cpu")) == pytest.approx(2 * work / 2e9)
    other = flops(cells("gated_deltanet")[0])
    assert other is not None
    assert seconds(cells("gated_deltanet"), rates(known, "cpu")) == pytest.approx(2 * other / 1e9)


def test_what_was_stacked_shared_its_seconds(a_result: Make) -> None:
    work = flops(cells()[0])
    assert work is not None
    assert seconds(cells(), rates([finished(a_result, "deltanet", per_second=1e9, stack={"size": 4, "note": None})], "cpu")) == pytest.approx(2 * work / 4e9)


def test_without_anything_finished_there_is_no_estimate(a_result: Make) -> None:
    assert seconds(cells(), rates([], "cpu")) is None
    assert seconds(cells(), rates([finished(a_result, "deltanet", per_second=1e9, device="NVIDIA H200")], "cpu")) is None
    assert seconds(cells(), rates([finished(a_result, "deltanet", per_second=1e9, status="failed")], "cpu")) is None
