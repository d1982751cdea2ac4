"""Ladders: training with larger and larger budgets until the task is learned."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from linbench.common.errors import UserError
from linbench.engine import ladder
from linbench.engine.ladder import known_rungs, run_ladders
from linbench.engine.lr_search import run_searched
from linbench.engine.measure import measure
from linbench.engine.runner import run_cells
from linbench.engine.schedule import evaluation_steps, learning_rate_factors, stable_steps
from linbench.engine.trunk import SUFFIX, Trunks, can_go_on
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings
from linbench.results.comparison import comparisons
from linbench.results.record import UNDERTRAINED
from linbench.results.rungs import Rung
from linbench.results.schema.cells import CellResult
from linbench.results.store import Store
from tests.helpers.cells import RecordingProgress, build_cells, measured, plan, tiny_settings

LADDER = {"protocol.schedule": "wsd", "protocol.rungs": 3}


def ladder_cells(*models: str, seeds: Sequence[int] = (0, 1), **settings: Any) -> list[Cell]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return build_cells(*(models or ("deltanet",)), seeds=seeds, settings=tiny_settings(20) | LADDER | named)


def climb(cells: Sequence[Cell], folder: Path) -> tuple[list[CellResult], RecordingProgress]:
    heard = RecordingProgress()
    return run_ladders(cells, Store(folder), heard), heard


def test_the_rate_rises_stays_and_falls_over_the_last_fifth() -> None:
    (cell,) = ladder_cells(seeds=[0], protocol__warmup=0.1)
    for number in range(3):
        rung = cell.rung(number)
        rates = learning_rate_factors(rung.steps, rung.protocol, base=rung.base_steps)
        assert rung.steps == 20 << number
        assert rates[:2] == [0.5, 1.0], "the warm-up is that of the lowest rung"
        assert set(rates[2 : stable_steps(rung)]) == {1.0}
        assert stable_steps(rung) == 16 << number
        falling = rates[stable_steps(rung) :]
        assert falling == sorted(falling, reverse=True)
        assert 0 < falling[-1] < falling[0] < 1


def test_a_longer_training_is_looked_at_when_a_shorter_one_is() -> None:
    (cell,) = ladder_cells(seeds=[0])
    for number in range(4):
        rung, longer = cell.rung(number), cell.rung(number + 1)
        until = stable_steps(rung)
        shared = {step for step in evaluation_steps(longer) if step <= until}
        assert {step for step in evaluation_steps(rung) if step <= until} == shared
        assert {until, rung.steps} <= evaluation_steps(rung)


def test_rungs_need_a_rate_that_stays() -> None:
    with pytest.raises(UserError, match=r"protocol\.schedule"):
        ladder_cells(protocol__schedule="cosine")
    with pytest.raises(UserError, match="20 times"):
        ladder_cells(protocol__rungs=15, protocol__doublings=10)


def test_cells_without_the_new_settings_have_the_identity_they_had() -> None:
    (cell,) = build_cells("deltanet", seeds=[0], settings=tiny_settings())
    names = cell.identity["protocol"]["settings"].keys()
    assert not {"rungs", "doublings", "cooldown", "fresh"} & names


@pytest.mark.slow
def test_every_rung_is_what_training_alone_with_its_budget_gives(tmp_path: Path) -> None:
    cells = ladder_cells()
    results, _ = climb(cells, tmp_path)
    store = Store(tmp_path)
    for number in range(len(results[0]["ladder"]["rungs"])):
        alone = list(measure([cell.rung(number) for cell in cells], lambda report: None))
        kept = [store.get(result["id"]) for result in alone]
        names = ("id", "metrics", "slices", "curve")
        assert [[each[name] for name in names] for each in kept if each] == [
            [each[name] for name in names] for each in alone
        ]


@pytest.mark.slow
def test_a_rung_goes_on_from_the_one_before_and_begins_anew_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = ladder_cells()
    found, heard = climb(cells, tmp_path / "with")
    last = cells[0].rung(2)
    assert min(heard.steps[last.id]) > stable_steps(cells[0].rung(1))
    monkeypatch.setattr(Trunks, "restore", lambda self, training: False)
    anew, heard = climb(cells, tmp_path / "without")
    assert min(heard.steps[last.id]) < stable_steps(cells[0].rung(1))
    assert measured(anew) == measured(found)


@pytest.mark.slow
def test_trunks_are_gone_when_their_ladders_have_ended(tmp_path: Path) -> None:
    climb(ladder_cells(), tmp_path)
    assert not list(tmp_path.rglob(f"*{SUFFIX}"))


def test_a_layer_that_draws_random_numbers_does_not_go_on_in_another_group() -> None:
    quiet, noisy = (plan("mqar/quick", [model], device="cpu")[0] for model in ("raven", "raven[noise=true]"))
    assert can_go_on(quiet)
    assert not can_go_on(noisy)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"", b"{}\nnothing", None])
def test_a_torn_trunk_costs_time_and_nothing_else(
    damage: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = ladder_cells()
    whole, _ = climb(cells, tmp_path / "whole")
    keep = Trunks.save_if_due

    def keep_and_tear(self: Trunks, training: Any) -> None:
        keep(self, training)
        for path in list(self.folder.glob(f"*{SUFFIX}"))[:1]:
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage)

    monkeypatch.setattr(Trunks, "save_if_due", keep_and_tear)
    torn, _ = climb(cells, tmp_path / "torn")
    assert measured(torn) == measured(whole)


@pytest.mark.slow
def test_only_cells_that_still_learn_climb_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = ladder_cells()
    first = cells[0].rung(0).id
    real = ladder.ending

    def end_the_first(rungs: Sequence[Rung], *how: Any, **most: Any) -> Any:
        return "optimum" if rungs[0] == score_of_first else real(rungs, *how, **most)

    score_of_first = Rung(-1.0, 0.0)
    results, _ = climb(cells, tmp_path / "all")
    one = Store(tmp_path / "all").get(first)
    assert one is not None
    score_of_first = Rung.of(one)
    monkeypatch.setattr(ladder, "ending", end_the_first)
    parted, _ = climb(cells, tmp_path / "parted")
    assert [len(result["ladder"]["rungs"]) for result in parted] == [1, 3]
    assert parted[1]["metrics"] == pytest.approx(results[1]["metrics"], abs=1e-4)


@pytest.mark.slow
def test_a_finished_ladder_is_not_climbed_again_and_a_higher_cap_goes_on(tmp_path: Path) -> None:
    cells = ladder_cells(protocol__rungs=2)
    results, _ = climb(cells, tmp_path)
    again, heard = climb(cells, tmp_path)
    assert again == results
    assert not heard.steps
    higher = [replace(cell, protocol=cell.protocol.model_copy(update={"rungs": 3})) for cell in cells]
    more, heard = climb(higher, tmp_path)
    assert set(heard.steps) == {cell.rung(2).id for cell in cells}
    purposes = {result["id"]: result["purpose"] for result in Store(tmp_path).all()}
    assert [purposes[cell.rung(number).id] for cell in cells for number in range(3)] == [
        "rung",
        "rung",
        "report",
    ] * 2
    assert [result["ladder"]["most"] for result in more] == [3, 3]


@pytest.mark.slow
def test_last_rungs_of_different_budgets_stand_in_one_table(tmp_path: Path) -> None:
    cells = ladder_cells("deltanet", "attention")
    climb(cells[:2], tmp_path)
    higher = [replace(cell, protocol=cell.protocol.model_copy(update={"rungs": 2})) for cell in cells[2:]]
    climb(higher, tmp_path)
    (comparison,) = comparisons(Store(tmp_path).all())
    assert [row.label for row in comparison.rows] == ["attention", "deltanet"]
    assert [len(row.results) for row in comparison.rows] == [2, 2]


@pytest.mark.slow
def test_seeds_that_still_climb_stand_in_the_table_and_take_part_in_no_verdict(tmp_path: Path) -> None:
    cells = ladder_cells(protocol__rungs=2)
    climb(cells[:1], tmp_path)
    run_cells([replace(cells[1].rung(0), purpose="rung")], Store(tmp_path), RecordingProgress())
    (comparison,) = comparisons(Store(tmp_path).all())
    (row,) = comparison.rows
    seeds = {result["cell"]["seed"]: result for result in row.results}
    assert seeds.keys() == {0, 1}
    assert "ladder" not in seeds[1]
    assert seeds[1]["marks"] == [UNDERTRAINED]
    assert not row.eligible


@pytest.mark.slow
def test_a_ladder_is_climbed_at_the_rate_that_a_search_found(tmp_path: Path) -> None:
    cells = ladder_cells(protocol__rungs=2)
    search = SearchSettings(lowest=-6, rates=5, extensions=0, seeds=(1000,))
    store = Store(tmp_path)
    found = run_searched(cells, store, RecordingProgress(), settings=search)
    for result in found:
        settings: Any = result["cell"]["protocol"]["settings"]
        assert result["search"] is not None
        assert settings["lr"] == result["search"]["best"]
        assert settings["doublings"] == 1
        assert [rung["tokens"] for rung in result["ladder"]["rungs"]] == [1280, 2560]
    tuning = [result for result in store.all() if result["purpose"] == "tuning"]
    assert {result["cell"]["seed"] for result in tuning} == {1000}


@pytest.mark.slow
def test_what_ends_at_the_cap_is_undertrained(tmp_path: Path) -> None:
    results, _ = climb(ladder_cells(protocol__rungs=2), tmp_path)
    assert [(result["ladder"]["ended"], result["marks"]) for result in results] == [
        ("cap", [UNDERTRAINED])
    ] * 2


def test_known_rungs_stop_where_results_do() -> None:
    (cell,) = ladder_cells(seeds=[0])
    assert [rung.protocol.doublings for rung in known_rungs(cell, lambda rung: None)] == [0]


@pytest.mark.slow
def test_a_ladder_that_is_asked_again_looks_at_its_next_rung_alone(tmp_path: Path) -> None:
    """A launcher asks every ladder after every result: what is known must not be worked out anew."""
    (cell,) = ladder_cells(seeds=[0])
    (ended,), heard = climb([cell], tmp_path)
    results = {name: result for name, *_ in heard.done if (result := Store(tmp_path).get(name))}
    asked: list[str] = []

    class Results(dict[str, CellResult]):
        def get(self, name: str, default: Any = None) -> Any:
            asked.append(name)
            return super().get(name, default)

    ladders, known = ladder.Ladders(Store(tmp_path)), Results()
    first, second, third = (cell.rung(number) for number in range(3))
    assert ladders.climb(cell, known) == [first]
    assert ladders.climb(cell, known) == []
    assert asked == [first.id] * 2
    known[first.id] = results[first.id]
    assert ladders.climb(cell, known) == [second]
    assert asked[2:] == [first.id, second.id]
    known.update(results)
    assert ladders.climb(cell, known) == [third]
    assert ladders.ended[cell.id]["id"] == ended["id"] == third.id
    assert ladders.climb(cell, known) == []
