from collections.abc import Callable

import pytest

from linbench.engine.cost import estimate_seconds, fit_cost_model, flops
from linbench.experiments.cell import Cell
from linbench.results.schema import Result
from tests.helpers.cells import plan

Make = Callable[..., Result]


def cells(model: str = "deltanet", **settings: object) -> list[Cell]:
    return plan(
        "mqar",
        [model],
        device="cpu",
        seeds=[0, 1],
        settings={name.replace("__", "."): value for name, value in settings.items()},
    )


def finished(make: Make, label: str, *, per_second: float, **more: object) -> Result:
    """Trained at `per_second` floating-point operations."""
    tokens = 1000.0
    return make(label, curve=[{"tokens": tokens, "step": 5}], seconds=3 * 10 * tokens / per_second, **more)


def test_the_work_is_the_protocols_tokens_forward_and_twice_backward() -> None:
    (cell, _) = cells()
    per_token = cell.model.build(cell.task, seed=0).flops_per_token(cell.task.seq_len, cell.task.answers)
    assert per_token is not None
    assert flops(cell) == pytest.approx(3 * per_token * cell.steps * 32 * 64)
    assert flops(cells(protocol__tokens=4_915_200)[0]) == pytest.approx(
        4 * 3 * per_token * cell.steps * 32 * 64
    )


def test_a_mixture_is_as_much_work_as_it_has_tokens() -> None:
    train = [{"seq_len": 32, "kv_pairs": 4, "examples": 320}, {"examples": 64}]
    (cell,) = plan(
        "mqar",
        ["deltanet"],
        device="cpu",
        settings={"protocol.epochs": 3},
        train=train,
        test=[{"seq_len": 128, "kv_pairs": 16}, {}],
    )
    per_token = cell.model.build(cell.task, seed=0).flops_per_token(128, 16)
    assert per_token is not None
    assert flops(cell) == pytest.approx(3 * per_token * 3 * (320 * 32 + 64 * 64))


def test_a_model_is_judged_by_its_own_speed_else_by_that_of_all(a_result: Make) -> None:
    work = flops(cells()[0])
    assert work is not None
    known = [
        finished(a_result, "deltanet", per_second=2e9),
        *(finished(a_result, name, per_second=1e9) for name in ("attention", "linear_attention", "gla")),
    ]
    assert estimate_seconds(cells(), fit_cost_model(known, "cpu")) == pytest.approx(2 * work / 2e9)
    other = flops(cells("gated_deltanet")[0])
    assert other is not None
    assert estimate_seconds(cells("gated_deltanet"), fit_cost_model(known, "cpu")) == pytest.approx(
        2 * other / 1e9
    )


def test_what_was_stacked_shared_its_seconds(a_result: Make) -> None:
    work = flops(cells()[0])
    assert work is not None
    assert estimate_seconds(
        cells(),
        fit_cost_model(
            [finished(a_result, "deltanet", per_second=1e9, stack={"size": 4, "note": None})], "cpu"
        ),
    ) == pytest.approx(2 * work / 4e9)


def test_without_anything_finished_there_is_no_estimate(a_result: Make) -> None:
    assert estimate_seconds(cells(), fit_cost_model([], "cpu")) is None
    assert (
        estimate_seconds(
            cells(),
            fit_cost_model([finished(a_result, "deltanet", per_second=1e9, device="NVIDIA H200")], "cpu"),
        )
        is None
    )
    assert (
        estimate_seconds(
            cells(), fit_cost_model([finished(a_result, "deltanet", per_second=1e9, status="failed")], "cpu")
        )
        is None
    )


def test_small_steps_are_bound_by_their_number_and_large_ones_by_their_work(a_result: Make) -> None:
    """The fixture's model has 10 operations a token."""

    def timed(label: str, tokens: float, per_step: float) -> Result:
        return a_result(label, curve=[{"tokens": 7 * tokens, "step": 7}], seconds=7 * per_step)

    sizes = (1e4, 1e5, 1e6, 1e7)
    known = [
        timed(label, tokens, times * (0.003 + 2e-9 * 30 * tokens))
        for label, times in (("deltanet", 1.0), ("gla", 3.0))
        for tokens in sizes
    ]
    found = fit_cost_model(known, "cpu")
    assert found is not None
    for label, times in (("deltanet", 1.0), ("gla", 3.0), ("gated_deltanet", 2.0)):
        for batch in (1, 4096):
            (cell,) = plan("mqar", [label], device="cpu", seeds=[0], settings={"protocol.batch_size": batch})
            work = flops(cell)
            assert work is not None
            assert estimate_seconds([cell], found) == pytest.approx(
                times * (0.003 * cell.steps + 2e-9 * work)
            )


@pytest.mark.parametrize(
    ("per_step", "least", "operation"), [((1.0, 4.0), 0.0, True), ((4.0, 1.0), True, 0.0)]
)
def test_neither_steps_nor_work_take_less_than_nothing(
    a_result: Make, per_step: tuple[float, float], least: float, operation: float
) -> None:
    known = [
        a_result("deltanet", curve=[{"tokens": tokens, "step": 1}], seconds=took)
        for tokens, took in zip((1e3, 2e3), per_step, strict=True)
    ]
    found = fit_cost_model(known, "cpu")
    assert found is not None
    assert (found.least > 0, found.operation > 0) == (bool(least), bool(operation))
