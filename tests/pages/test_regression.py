"""Sentences of docs/which-optimiser.md about update rules on regression follow from the stored rows."""

import pytest

from linbench.verify.regression import RULES, regression
from linbench.verify.regression_panels import Panel, drawing, panels
from tests.pages.regression import CAPTION, PICTURE, load


@pytest.fixture(scope="module")
def both() -> list[Panel]:
    return panels(load())


def recompute(rules: list[str], **settings: list[float]) -> None:
    """Compare rows with the stored ones; constants whose errors are nearly equal may change places."""
    stored = {(row["rule"], row["condition"], row["drift"]): row["error"] for row in load()}
    rows = regression(rules, **settings)
    for row in rows:
        assert row["error"] == pytest.approx(
            stored.pop((row["rule"], row["condition"], row["drift"])), rel=0.02
        )
    assert bool(stored) == bool(settings)


def test_some_rows_are_what_the_command_computes_today() -> None:
    recompute(["averaging", "one step", "CG, 3 steps", "exact"], conditions=[100.0], drifts=[])


@pytest.mark.slow
def test_all_rows_are_what_the_command_computes_today() -> None:
    recompute(list(RULES))


def test_the_picture_is_drawn_from_the_stored_rows() -> None:
    drawn = drawing(load())
    assert drawn.about in PICTURE.read_text(encoding="utf-8")
    assert CAPTION.read_text(encoding="utf-8") == f"{drawn.caption}\n{drawn.about}.\n"


def test_a_sum_errs_more_than_twice_a_delta_rule_where_nothing_drifts_and_most_of_all(
    both: list[Panel],
) -> None:
    for panel in both:
        for name, errors in panel.errors.items():
            if name != "CG, 1 step":
                assert all(one <= most for one, most in zip(errors, panel.errors["averaging"], strict=True))
    pairs = zip(both[0].errors["averaging"], both[0].errors["one step"], strict=True)
    assert all(one > 2 * delta for one, delta in pairs)


def test_conjugate_gradients_go_from_a_sum_to_the_exact_solution(both: list[Panel]) -> None:
    for panel in both:
        assert panel.errors["CG, 1 step"] == pytest.approx(panel.errors["averaging"], rel=0.06)
        assert panel.errors["CG, 30 steps"] == pytest.approx(panel.errors["exact"], rel=1e-3)
    ten = [
        one / best for one, best in zip(both[0].errors["CG, 10 steps"], both[0].errors["exact"], strict=True)
    ]
    assert [one < 1.05 for one in ten] == [True, True, False, False]


def test_the_exact_solution_errs_least(both: list[Panel]) -> None:
    for panel in both:
        for errors in panel.errors.values():
            assert all(0.99 * best < one for one, best in zip(errors, panel.errors["exact"], strict=True))


@pytest.mark.parametrize("name", ["one step, momentum", "one step, preconditioned"])
def test_what_gains_nothing_errs_as_one_step_does(both: list[Panel], name: str) -> None:
    for panel in both:
        assert panel.errors[name] == pytest.approx(panel.errors["one step"], rel=0.07)


def test_the_smallest_momentum_is_the_best() -> None:
    assert {row["momentum"] for row in load() if row["rule"] == "one step, momentum"} == {0.5}


def test_a_preconditioner_along_axes_gains_by_condition_and_loses_by_drift(both: list[Panel]) -> None:
    name = "one step, preconditioned along axes"
    by_condition, by_drift = (
        [one / plain for one, plain in zip(panel.errors[name], panel.errors["one step"], strict=True)]
        for panel in both
    )
    assert by_condition == sorted(by_condition, reverse=True)
    assert [one > 1 for one in by_drift] == [False, False, False, True, True]


def test_newton_schulz_errs_more_than_one_step(both: list[Panel]) -> None:
    for panel in both:
        pairs = zip(panel.errors["Newton-Schulz"], panel.errors["one step"], strict=True)
        assert all(one > plain for one, plain in pairs)
