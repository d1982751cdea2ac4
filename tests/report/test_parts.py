"""The table and the figure of the steps from linear attention to KDA."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.report.data import ReportData
from linbench.report.figures.parts import FIGURE
from linbench.report.tables.parts import parts_tables

Make = Callable[..., Any]


@pytest.fixture
def results(a_result: Make) -> list[Any]:
    """Two tasks: a convolution adds .2, the delta rule .1, and both together .3 more in the second one."""
    found = []
    for pairs, conv, decay, erases, seed in product(
        (8, 16), (0, 4), ("none", "head", "channel"), (False, True), range(3)
    ):
        parts = {"conv": conv, "decay": decay, "erases": erases, "neg_eigval": False, "output_gate": "none"}
        score = 0.2 + 0.2 * bool(conv) + 0.1 * erases + 0.3 * (pairs == 16 and bool(conv) and erases)
        score += 0.01 * (seed - 1)
        settings = {**parts, "qk_norm": "l2"}
        one = a_result("kda", seed, score, kv_pairs=pairs, surroundings=settings)
        one["label"] = f"kda[conv={conv},decay={decay},erases={erases}]"
        found.append(one)
    return found


def test_steps_stand_with_what_they_change(results: list[Any], snapshot: SnapshotAssertion) -> None:
    (table,) = parts_tables(ReportData(results))
    assert table.body() == snapshot
    means = {(each["task"], each["effect"]): each["mean"] for each in table.to_records()}
    tasks = sorted({task for task, _ in means})
    pair = "short convolution and delta rule"
    assert [means[task, "delta rule"] for task in tasks] == pytest.approx([0.25, 0.1])
    assert [means[task, pair] for task in tasks] == pytest.approx([0.3, 0])


def delta_rule(results: list[Any]) -> list[float]:
    (table,) = parts_tables(ReportData(results))
    return [each["mean"] for each in table.to_records() if each["effect"] == "delta rule"]


def test_a_seed_that_diverged_counts_as_chance(results: list[Any]) -> None:
    before = delta_rule(results)
    for one in results:
        if one["cell"]["seed"] == 0 and not one["cell"]["model"]["layers"][0]["settings"]["erases"]:
            one |= {"status": "diverged", "metrics": {}}
    assert all(after > first for after, first in zip(delta_rule(results), before, strict=True))


def test_what_diverges_whatever_its_seed_has_no_score(results: list[Any]) -> None:
    """It adds most in the second task, where each of its steps would suffer if it counted as chance."""
    before = delta_rule(results)
    lost = {"conv": 4, "erases": True, "decay": "head"}
    for one in results:
        settings = one["cell"]["model"]["layers"][0]["settings"]
        if settings == settings | lost:
            one |= {"status": "diverged", "metrics": {}}
    (table,) = parts_tables(ReportData(results))
    words = "mqar quick kv_pairs 8: 1 of 12 diverged. mqar quick kv_pairs 16: 1 of 12 diverged."
    assert table.caption.endswith(words)
    assert delta_rule(results) == pytest.approx([before[0], (3 * 0.1 + 2 * 0.4) / 5])


def test_models_that_differ_otherwise_are_no_factorial(a_result: Make) -> None:
    assert not parts_tables(ReportData([a_result("kda", 0, 0.5), a_result("deltanet", 0, 0.5)]))


def test_one_figure_has_all_tasks(results: list[Any]) -> None:
    (drawing,) = FIGURE.drawings(ReportData(results))
    assert drawing.pictures(["svg"])["svg"].count(b"change of accuracy") == 2
    assert not FIGURE.drawings(ReportData(results[:1]))


def is_of(one: Any, pairs: int, parts: dict[str, Any]) -> bool:
    cell = one["cell"]
    settings = cell["model"]["layers"][0]["settings"]
    return cell["task"]["settings"]["kv_pairs"] == pairs and parts.items() <= settings.items()


@pytest.mark.parametrize("is_open", [False, True])
def test_a_task_waits_until_every_combination_was_trained(results: list[Any], is_open: bool) -> None:
    """A mean over those that were would depend on which these are."""
    lost = {"conv": 4, "erases": True, "decay": "head"}
    if is_open:
        for one in results:
            if is_of(one, 16, lost) and one["cell"]["seed"] == 1:
                one |= {"purpose": "rung"}
            else:
                one["ladder"] = {"ended": "optimum", "most": 6, "rungs": [{"tokens": 1000, "accuracy": 0.9}]}
    else:
        results = [one for one in results if not is_of(one, 16, lost)]
    (table,) = parts_tables(ReportData(results))
    (drawing,) = FIGURE.drawings(ReportData(results))
    assert table.names == ["step", "mqar quick kv_pairs 8"]
    for caption in (table.caption, drawing.caption):
        assert {"waits", "12"} <= set(caption.split())
