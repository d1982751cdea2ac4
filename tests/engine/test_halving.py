"""Searches for learning rates on rungs: the better half of the rates climbs on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from linbench.engine.former import results_at_chosen_rates
from linbench.engine.lr_search import pending_cells, run_searched
from linbench.engine.rate_search import Search
from linbench.engine.schedule import stable_steps
from linbench.engine.trunk import SUFFIX
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings, default_search, learning_rate
from linbench.results.schema.cells import CellResult
from linbench.results.store import Store
from tests.helpers.cells import RecordingProgress, build_cells, tiny_settings

SETTINGS = SearchSettings(lowest=-8, rates=5, extensions=2, seeds=(100, 101), refine=False, halving=True)
REFINED = SETTINGS.model_copy(update={"refine": True})
FIVE = [-16, -14, -12, -10, -8]
"""The rates of the grid, numbered in quarter decades."""


def a_cell(rungs: int = 6, **settings: Any) -> Cell:
    ladder = {"protocol.schedule": "wsd", "protocol.rungs": rungs}
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return build_cells("deltanet", seeds=[0], settings=tiny_settings(20) | ladder | named)[0]


def scored(cell: Cell, accuracy: float) -> Any:
    tokens = cell.curriculum.tokens(cell.steps)
    curve = [{"step": cell.steps, "tokens": tokens, "loss": 1.0, "accuracy": accuracy, "nll": 1.0}]
    return {"status": "ok", "chance": 0.1, "curve": curve}


def rate_of(cell: Cell) -> int:
    return next(n for n in range(-24, 1) if learning_rate(n) == cell.protocol.lr)


def moving(*best: int, top: float = 0.5) -> Callable[[Cell], float]:
    """Return accuracies that fall on either side of a rate, which is another one on each rung.

    With the default the best has learned less than half, for chance is .1.
    """

    def accuracy(cell: Cell) -> float:
        peak = best[min(cell.protocol.doublings, len(best) - 1)]
        return top - 0.02 * abs(rate_of(cell) - peak)

    return accuracy


def follow(search: Search, accuracy: Callable[[Cell], float]) -> list[tuple[int, list[int]]]:
    """Take a search to its end and return what was tried, by rung."""
    tried = []
    while search.pending:
        tried.append((search.rung, sorted(search.trials)))
        assert {cell.purpose for cell in search.pending} == {"tuning"}
        assert {cell.protocol.rungs for cell in search.pending} == {1}
        assert {cell.protocol.doublings for cell in search.pending} == {search.rung}
        search.record({cell.id: scored(cell, accuracy(cell)) for cell in search.pending})
    return tried


def test_the_better_half_climbs_until_two_rates_are_left() -> None:
    search = Search(a_cell(), SETTINGS)
    assert follow(search, moving(-10)) == [(0, FIVE), (1, [-12, -10, -8]), (2, [-12, -10])]
    assert search.best == -10


def test_the_rate_that_is_best_later_is_chosen_though_it_was_not_at_first() -> None:
    search = Search(a_cell(), SETTINGS)
    follow(search, moving(-10, -10, -12))
    assert search.best == -12
    without = Search(a_cell(), SETTINGS.model_copy(update={"halving": False}))
    assert follow(without, moving(-10, -10, -12)) == [(0, FIVE)]
    assert without.best == -10


@pytest.mark.parametrize(("top", "rungs"), [(0.54, 3), (0.56, 2)])
def test_rates_climb_no_further_than_twice_the_budget_once_the_best_has_learned_half(
    top: float, rungs: int
) -> None:
    """Chance is .1, so half of the way is .55. What was learned on the lowest rung alone decides nothing."""
    tried = follow(Search(a_cell(), REFINED), moving(-10, top=top))
    assert [rung for rung, _ in tried] == [*range(rungs), rungs - 1]
    assert tried[-1] == (rungs - 1, [-11, -9])


def test_the_neighbours_of_the_best_are_tried_on_its_rung() -> None:
    search = Search(a_cell(), REFINED)
    assert follow(search, moving(-10, -10, -11))[-1] == (2, [-13, -11])
    assert search.best == -11


def test_what_is_at_the_optimum_with_every_seed_climbs_no_further() -> None:
    search = Search(a_cell(), REFINED)
    assert follow(search, lambda cell: 1.0 if rate_of(cell) == -12 else 0.2) == [
        (0, FIVE), (0, [-13, -11]),
    ]  # fmt: skip
    one_of_two = Search(a_cell(), SETTINGS)
    learned = {100: 1.0, 101: 0.9}
    assert len(follow(one_of_two, lambda cell: learned[cell.seed] if rate_of(cell) == -12 else 0.2)) == 2


def test_no_rate_climbs_above_the_cap_or_without_rungs() -> None:
    assert [rung for rung, _ in follow(Search(a_cell(rungs=2), SETTINGS), moving(-10))] == [0, 1]
    assert [rung for rung, _ in follow(Search(a_cell(rungs=1), SETTINGS), moving(-10))] == [0]


def test_a_best_rate_that_comes_to_lie_on_an_edge_is_passed_on_that_rung() -> None:
    search = Search(a_cell(), SETTINGS)
    tried = follow(search, moving(-10, -6))
    assert tried[:4] == [(0, FIVE), (1, [-12, -10, -8]), (1, [-6]), (1, [-4])]
    assert search.best == -6
    assert not search.on_edge


def test_a_rate_that_fails_on_a_higher_rung_is_not_chosen_and_is_told() -> None:
    search = Search(a_cell(), SETTINGS)
    while search.pending:
        failing = {cell.id for cell in search.pending if search.rung and rate_of(cell) == -10}
        search.record(
            {
                cell.id: scored(cell, moving(-10)(cell)) | ({"status": "oom"} if cell.id in failing else {})
                for cell in search.pending
            }
        )
    assert search.best in (-12, -8)
    assert search.marks == ["lr_untried"]


def test_the_summary_has_the_rung_of_each_rate_and_the_cost_where_rungs_go_on() -> None:
    cell = a_cell()
    search = Search(cell, SETTINGS)
    follow(search, moving(-10))
    summary = search.summary()
    assert [rate for rate, _ in summary["accuracies"]] == [learning_rate(n) for n in FIVE]
    assert summary["rungs"] == [0, 0, 2, 2, 1]
    assert summary["runs"] == 2 * (5 + 3 + 2)
    base, trunks = cell.curriculum.tokens(20), [cell.curriculum.tokens(16), cell.curriculum.tokens(32)]
    expected = 2 * (5 * base + 3 * (2 * base - trunks[0]) + 2 * (4 * base - trunks[1]))
    assert summary["tokens"] == expected


@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize("extensions", [0, 2])
@pytest.mark.parametrize("rungs", [1, 2, 3, 6])
@pytest.mark.parametrize("best", [(-12,), (-10, -6), (-16, -12, -8), (-8, -16, -8), (-6, -2, 0), (-20,)])
def test_a_search_never_adds_more_than_it_foresees(
    best: Sequence[int], rungs: int, extensions: int, refine: bool
) -> None:
    settings = SETTINGS.model_copy(update={"extensions": extensions, "refine": refine})
    search = Search(a_cell(rungs=rungs), settings)
    added, foreseen = [], []
    while search.pending:
        added.append(len(search.pending))
        foreseen.append(search.most_to_come)
        search.record({cell.id: scored(cell, moving(*best)(cell)) for cell in search.pending})
    assert all(sum(added[stage + 1 :]) <= most for stage, most in enumerate(foreseen))


def test_the_default_halves_and_cells_without_rungs_are_searched_as_before() -> None:
    assert default_search().halving
    assert "halving" not in SETTINGS.model_copy(update={"halving": False}).identity()
    alike = [
        follow(Search(a_cell(rungs=1), REFINED.model_copy(update={"halving": on})), moving(-10))
        for on in (True, False)
    ]
    assert alike[0] == alike[1]


def test_a_dry_run_counts_the_rungs_of_a_search_as_far_as_results_lead() -> None:
    cell = a_cell()
    stored: dict[str, Any] = {}
    counts = []
    search = Search(cell, SETTINGS)
    while search.pending:
        pending = pending_cells([cell], stored.get, SETTINGS, retry=True)
        counts.append((len(pending.tuning), len(pending.left)))
        assert {each.id for each in search.pending} <= pending.left
        found = {each.id: scored(each, moving(-10)(each)) for each in search.pending}
        stored |= found
        search.record(found)
    assert counts == [(10, 11), (16, 7), (20, 5)]
    assert pending_cells([cell], stored.get, SETTINGS, retry=True).left == {cell.id}


def test_rates_that_were_chosen_on_the_lowest_rung_alone_are_found_and_marked() -> None:
    cell, stored = a_cell(), dict[str, Any]()
    search = Search(cell, default_search().model_copy(update={"halving": False}))
    while search.pending:
        found = {each.id: scored(each, moving(-10)(each)) for each in search.pending}
        stored |= found
        search.record(found)
    stored[search.at_best(cell).rung(0).id] = {**scored(cell, 1.0), "marks": []}
    (result,) = results_at_chosen_rates([cell], lambda cell: stored.get(cell.id), default_search()).values()
    assert result["marks"] == ["lr_base_budget"]


class StoppedError(Exception):
    """Instead of a kill."""


@pytest.mark.slow
def test_tuning_cells_are_rungs_that_go_on_and_are_resumed(tmp_path: Path) -> None:
    cells = [a_cell(rungs=3, protocol__lr=0.001)]
    settings = SETTINGS.model_copy(update={"seeds": (100,), "extensions": 0, "refine": True})
    whole, steps = searched(cells, tmp_path / "whole", settings)
    store = Store(tmp_path / "whole")
    tuning = [result for result in store.all() if result["purpose"] == "tuning"]
    doublings = [each["cell"]["protocol"]["settings"].get("doublings", 0) for each in tuning]
    assert doublings.count(0) == 5
    assert doublings.count(1) == 3
    of_second = [result["id"] for result, rung in zip(tuning, doublings, strict=True) if rung == 1]
    assert all(min(steps[name]) > stable_steps(cells[0]) for name in of_second), "on from the first"
    assert not list(tmp_path.rglob(f"*{SUFFIX}"))

    stopped = RecordingProgress()

    def stop() -> None:
        if len(stopped.done) == 5 + 3:
            raise StoppedError

    stopped.on_report = stop
    with pytest.raises(StoppedError):
        run_searched(cells, Store(tmp_path / "stopped"), stopped, settings=settings)
    resumed, again = searched(cells, tmp_path / "stopped", settings)
    assert [result["search"] for result in resumed] == [result["search"] for result in whole]
    assert [result["metrics"] for result in resumed] == [result["metrics"] for result in whole]
    assert not set(stopped.done_ids) & again.keys(), "what was finished is not run again"


def searched(
    cells: Sequence[Cell], folder: Path, settings: SearchSettings
) -> tuple[list[CellResult], dict[str, list[int]]]:
    heard = RecordingProgress()
    return run_searched(cells, Store(folder), heard, settings=settings), heard.steps
