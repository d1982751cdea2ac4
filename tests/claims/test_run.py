"""Running what claims lack, and deciding them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from linbench.claims.looks import LOOKS
from linbench.claims.run import Runner, decide
from linbench.claims.stored_results import Stored
from linbench.claims.verdict import SUPPORTED, UNDECIDED
from linbench.common.errors import HopelessError
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings
from linbench.results.schema import Result
from linbench.results.store import Store
from tests.claims.test_speed_evidence import STEADY, a_timed_claim, a_timing
from tests.helpers.claims import a_claim, a_result

RUN = list[list[Cell]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    store.prepare()
    return store


def training(store: Store, runs: RUN, score: Callable[[Cell], float | None] = lambda cell: None) -> Runner:
    """Return a runner whose DeltaNet scores .9 unless `score` says otherwise, and other models .2."""

    def run_cells(cells: Sequence[Cell], search: SearchSettings | None) -> list[Result]:
        assert search is None
        runs.append(list(cells))
        made = [
            a_result(cell, (score(cell) or 0.9) if cell.model.label == "deltanet" else 0.2, "cpu")
            for cell in cells
        ]
        for result in made:
            store.put(result)
        return made

    return Runner("cpu", run_cells, lambda cases: pytest.fail("nothing is timed"), pytest.fail)


def test_without_a_runner_nothing_is_run(store: Store) -> None:
    decided = decide([a_claim()], lambda: Stored([store]))
    assert [each.outcome for each in decided.verdicts] == [UNDECIDED]
    assert decided.new == []


def test_missing_cells_of_all_claims_run_together_and_once(store: Store) -> None:
    runs: RUN = []
    other = a_claim(measures={"delta": "deltanet", "sum": "gla"})
    decided = decide([a_claim(), other], lambda: Stored([store]), training(store, runs))
    assert [each.outcome for each in decided.verdicts] == [SUPPORTED, SUPPORTED]
    assert [len(cells) for cells in runs] == [3 * LOOKS[0]], "the first look at three models"
    assert len(decided.new) == len(decided.stored.results) == 3 * LOOKS[0]
    again = decide([a_claim(), other], lambda: Stored([store]), training(store, runs))
    assert (again.new, len(runs)) == ([], 1)


def test_seeds_are_added_until_they_decide(store: Store) -> None:
    runs: RUN = []
    one_differs = training(store, runs, score=lambda cell: 0.3 if cell.seed == 5 else None)
    decided = decide([a_claim()], lambda: Stored([store]), one_differs)
    assert [sorted({cell.seed for cell in cells}) for cells in runs] == [[*range(14)], [*range(14, 24)]]
    (verdict,) = decided.verdicts
    assert (verdict.outcome, verdict.rulings[0].tally.seeds) == (SUPPORTED, 24)


def test_no_seeds_are_added_that_could_not_decide(store: Store) -> None:
    runs: RUN = []
    every_third = training(store, runs, score=lambda cell: 0.3 if cell.seed % 3 else None)
    (verdict,) = decide([a_claim()], lambda: Stored([store]), every_third).verdicts
    assert [len(cells) for cells in runs] == [28]
    assert (verdict.outcome, verdict.complete) == (UNDECIDED, True)


def test_a_claim_that_waits_is_not_run(store: Store) -> None:
    runs: RUN = []
    decide([a_claim(needs={"models": ["no_such"]})], lambda: Stored([store]), training(store, runs))
    assert runs == []


def test_a_model_without_a_learning_rate_is_told_and_others_are_decided(store: Store) -> None:
    told: list[str] = []
    claim, timed = a_claim(), a_timed_claim()
    error = HopelessError("no learning rate of deltanet works.")

    def hopeless(cells: Sequence[Cell], search: SearchSettings | None) -> list[Result]:
        raise error

    def time_layers(cases: Sequence[object]) -> list[Result]:
        made = [a_timing(timed, name, STEADY, "cpu") for name in ("delta", "gla")]
        assert len(cases) == len(made)
        for result in made:
            store.put(result)
        return made

    decided = decide(
        [claim, timed], lambda: Stored([store]), Runner("cpu", hopeless, time_layers, told.append)
    )
    assert told == [str(error)]
    assert [each.outcome for each in decided.verdicts] == [UNDECIDED, SUPPORTED]
    assert len(decided.new) == 2
