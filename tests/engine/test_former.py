"""Stored results whose learning rates were chosen by a rule of their day."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.claims.cells import CellSource
from linbench.claims.claim import claims
from linbench.engine.former import (
    cells_to_run,
    describe_former_rules,
    joining,
    results_at_chosen_rates,
    settled_by_former_rules,
)
from linbench.experiments.cell import Cell
from linbench.experiments.former_searches import FormerSearch, former_rules
from linbench.experiments.learning_rates import SearchSettings, default_search, learning_rate
from linbench.experiments.suite import load, shipped
from linbench.results.record import EDGE, NO_VERDICT, UNTRIED
from linbench.results.schema import Result
from tests.helpers.cells import plan

ASKED = default_search()
TWO = (1000, 1001)
LOWER, UPPER = -14, -12
"""Two rates of the grid side by side, in quarter decades."""
ONE_SEED, TWO_SEEDS, UNREFINED, TIES = "lr_one_seed", "lr_two_seeds", "lr_unrefined", "lr_former_ties"


def cells(*models: str, seeds: Sequence[int] = (0, 1)) -> list[Cell]:
    return plan("mqar", list(models or ("deltanet",)), device="cpu", seeds=seeds)


class Kept:
    """Results as they would be stored: tuning runs by accuracy and loss at every rate, and reports at
    some."""

    def __init__(self) -> None:
        self.results: dict[tuple[str, float, int], Result] = {}

    def __call__(self, cell: Cell) -> Result | None:
        return self.results.get((cell.model.label, cell.protocol.lr, cell.seed))

    def put(self, model: str, n: int, seed: int, accuracy: float = 0.5, loss: float = 1.0) -> None:
        curve = [{"tokens": 64, "accuracy": accuracy, "loss": 0.0, "nll": loss}]
        self.results[model, learning_rate(n), seed] = {
            "status": "ok",
            "chance": 0.1,
            "marks": [],
            "curve": curve,
            "lr": learning_rate(n),
            "cell": {"protocol": {"settings": {"lr": learning_rate(n)}}},
            "seed": seed,
        }

    def tune(
        self,
        model: str,
        seeds: Sequence[int],
        accuracy: Callable[[int], float],
        loss: Callable[[int], float] = lambda n: 1.0,
        *,
        refined: bool = False,
    ) -> None:
        """Keep the runs of a search; `refined`: those at all quarter decades within the grid, too."""
        for n in range(ASKED.grid[0], ASKED.grid[-1] + 1) if refined else ASKED.grid:
            for seed in seeds:
                self.put(model, n, seed, accuracy(n), loss(n))


def rates(results: dict[str, Result]) -> set[float]:
    return {result["lr"] for result in results.values()}


def test_the_rules_of_former_days_are_searches_with_a_sentence_and_a_mark_of_their_own() -> None:
    rules = former_rules()
    assert len({rule.instead_of(ASKED) for rule in rules}) == len(rules) > 0
    assert len({(rule.mark, rule.says) for rule in rules}) == len({rule.mark for rule in rules})
    for rule in rules:
        assert rule.says
        assert rule.mark not in NO_VERDICT
        found = rule.instead_of(ASKED)
        assert found is not None
        SearchSettings.parse(found.model_dump(), where="former_searches")
        assert found != ASKED


def test_a_former_rule_stands_in_for_todays_default_alone() -> None:
    one_seed = FormerSearch("m", "s", {"seeds": (1000,)})
    assert one_seed.instead_of(ASKED.model_copy(update={"rates": 7})) == ASKED.model_copy(
        update={"rates": 7, "seeds": (1000,)}
    )
    assert one_seed.instead_of(ASKED.model_copy(update={"seeds": (5, 6, 7)})) is None


def test_the_search_as_asked_comes_first() -> None:
    kept = Kept()
    kept.tune("deltanet", ASKED.seeds, lambda n: 1.0 - abs(n - LOWER - 1) / 10, refined=True)
    for n in (LOWER, LOWER + 1, UPPER):
        kept.put("deltanet", n, 0)
        kept.put("deltanet", n, 1)
    found = results_at_chosen_rates(cells(), kept, ASKED)
    assert len(found) == 2
    assert rates(found) == {learning_rate(LOWER + 1)}
    assert describe_former_rules(list(found.values())) == []


def test_what_was_chosen_on_one_seed_by_the_rule_of_its_day_is_found_and_marked(
    snapshot: SnapshotAssertion,
) -> None:
    kept = Kept()
    kept.tune("deltanet", (1000,), lambda n: 1.0 if n in (LOWER, UPPER) else 0.5, loss=lambda n: float(n))
    for n in (LOWER, UPPER):
        kept.put("deltanet", n, 0)
    found = results_at_chosen_rates(cells(seeds=[0]), kept, ASKED)
    assert rates(found) == {learning_rate(UPPER)}, "the upper of two equals"
    assert describe_former_rules(list(found.values())) == snapshot
    assert [result["marks"] for result in found.values()] == [[ONE_SEED]]
    assert all(not result["marks"] for result in kept.results.values()), "what is stored stays"


@pytest.mark.parametrize(
    ("tuned", "at", "own", "mark"),
    [
        (TWO, LOWER, None, TWO_SEEDS),
        (TWO, UPPER, None, TIES),
        (ASKED.seeds, LOWER, None, UNREFINED),
        ((7,), LOWER, (7,), UNREFINED),
        ((7,), UPPER, (7,), TIES),
    ],
)
def test_what_was_chosen_without_refinement_is_marked_by_its_seeds_and_ties(
    tuned: Sequence[int], at: int, own: tuple[int, ...] | None, mark: str
) -> None:
    """own: tuning seeds that a suite gives."""
    kept = Kept()
    kept.tune("deltanet", tuned, lambda n: 1.0 if n in (LOWER, UPPER) else 0.5)
    kept.put("deltanet", at, 0)
    search = ASKED.model_copy(update={"seeds": own}) if own else ASKED
    (result,) = results_at_chosen_rates(cells(seeds=[0]), kept, search).values()
    assert (result["lr"], result["marks"]) == (learning_rate(at), [mark])
    assert len(describe_former_rules([result])) == 1


def test_all_results_of_a_model_are_by_one_rule() -> None:
    kept = Kept()
    kept.tune("deltanet", ASKED.seeds, lambda n: 1.0 if n in (LOWER, UPPER) else 0.5, refined=True)
    kept.put("deltanet", LOWER, 0)  # as asked
    kept.put("deltanet", UPPER, 0)
    kept.put("deltanet", UPPER, 1)
    asked = cells(seeds=[0, 1, 2])
    found = results_at_chosen_rates(asked, kept, ASKED)
    assert rates(found) == {learning_rate(UPPER)}, "two of three"
    assert cells_to_run(asked, found) == asked, "what is run is run by one rule, too"
    assert settled_by_former_rules(asked, kept, ASKED) == {}
    assert settled_by_former_rules(asked[:2], kept, ASKED) == {
        name: found[name] for name in (asked[0].id, asked[1].id)
    }
    assert cells_to_run(asked[:2], found) == []


def test_models_are_judged_each_by_itself_and_without_any_search_nothing_is_guessed() -> None:
    kept = Kept()
    kept.tune("deltanet", ASKED.seeds, lambda n: 1.0 if n == UPPER else 0.5, refined=True)
    kept.tune("gla", (1000,), lambda n: 1.0 if n == UPPER else 0.5)
    for model in ("deltanet", "gla", "retnet"):
        kept.put(model, UPPER, 0)
    asked = cells("deltanet", "gla", "retnet", seeds=[0])
    found = results_at_chosen_rates(asked, kept, ASKED)
    assert [found[cell.id]["marks"] if cell.id in found else None for cell in asked] == [[], [ONE_SEED], None]
    assert settled_by_former_rules(asked, kept, ASKED).keys() == {asked[1].id}
    assert cells_to_run(asked, found) == asked[2:]
    assert settled_by_former_rules(asked, kept, None) == {}


def test_more_seeds_join_a_rate_that_a_former_rule_chose() -> None:
    kept = Kept()
    kept.tune("deltanet", (1000,), lambda n: 1.0 if n == UPPER else 0.5)
    kept.tune("gla", ASKED.seeds, lambda n: 1.0 if n == LOWER else 0.5, refined=True)
    for model in ("deltanet", "gla"):
        kept.put(model, UPPER, 0)
        kept.put(model, LOWER, 0)
    asked = cells("deltanet", "gla", "retnet", seeds=range(3))
    found = results_at_chosen_rates(asked, kept, ASKED)
    joined = joining(asked, found)
    assert joined.keys() == {cell.id for cell in asked[1:3]}, "not of the model that was searched as asked"
    assert {(cell.protocol.lr, cell.seed) for cell in joined.values()} == {
        (learning_rate(UPPER), 1),
        (learning_rate(UPPER), 2),
    }
    for cell in joined.values():
        kept.put(cell.model.label, UPPER, cell.seed)
    after = results_at_chosen_rates(asked, kept, ASKED)
    assert [after[cell.id]["marks"] for cell in asked[:3]] == [[ONE_SEED]] * 3
    assert joining(asked, after) == {}


@pytest.mark.parametrize("mark", [EDGE, UNTRIED])
def test_no_seed_joins_a_rate_that_is_in_doubt(mark: str) -> None:
    kept = Kept()
    kept.tune("deltanet", (1000,), lambda n: 1.0 if n == UPPER else 0.5)
    kept.put("deltanet", UPPER, 0)
    kept.results["deltanet", learning_rate(UPPER), 0]["marks"] = [mark]
    asked = cells(seeds=[0, 1])
    assert joining(asked, results_at_chosen_rates(asked, kept, ASKED)) == {}


def test_every_shipped_search_has_three_tuning_seeds_or_more_and_is_refined() -> None:
    searches: dict[str, Any] = {name: load(name).search for name in shipped()}
    searches |= {
        str(measure): measure.source.suite.search
        for claim in claims().values()
        for measure in claim.measures.values()
        if isinstance(measure.source, CellSource)
    }
    searched = {name: search for name, search in searches.items() if search}
    assert len(searched) > 1
    lax = [name for name, search in searched.items() if len(search.seeds) < 3 or not search.refine]
    assert lax == []


@pytest.mark.parametrize("name", ["zoo-one-length", "zoo-quick"])
def test_shipped_suites_search_as_by_default(name: str) -> None:
    assert load(name).search == ASKED
