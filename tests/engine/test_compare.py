from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linbench.common.errors import UserError
from linbench.common.hashing import digest
from linbench.engine.compare import plan_comparison
from linbench.experiments.cell import SCHEMA
from linbench.experiments.suite import Suite, SuiteModel
from linbench.results.reference import stores_at
from linbench.results.store import Store
from tests.helpers.records import a_point
from tests.helpers.speeds import a_speed, layer_of

SUITE = Suite.parse(
    {
        "about": "a test",
        "tasks": ["mqar"],
        "models": ["deltanet", {"model": "gla", "set": {"model.heads": 4}}],
        "seeds": "0-1",
        "set": {
            "task.seq_len": 16,
            "task.kv_pairs": 2,
            "task.vocab_size": 16,
            "model.d_model": 16,
            "model.layers": 1,
        },
    },
    where="suite",
)
BEST = -12
"""The learning rate 1e-3, in quarter decades."""
SEARCHED = Suite.parse(
    SUITE.model_dump(exclude={"search"}) | {"search": {"seeds": [100], "extensions": 0}}, where="suite"
)


@pytest.fixture
def keep(a_result: Callable[..., Any], tmp_path: Path) -> Callable[..., Path]:
    """Return a function that fills a folder with results of a suite's cells.

    It also writes those of the cells that chose its learning rates, where 1e-3 does best.
    """
    from linbench.experiments.suite import expand, narrow

    def kept(suite: Suite, *models: str, tuned: bool = True, **more: Any) -> Path:
        store = Store(tmp_path / "kept" / "cpu")
        store.prepare()
        cells = expand(narrow(suite, models=models), device="cpu").cells
        if suite.search:
            from linbench.engine.rate_search import Search

            chosen = [Search(cell, suite.search) for cell in cells]
            tuning = [
                cell
                for search in chosen
                for n in (*search.settings.grid, BEST - 1, BEST + 1)
                for cell in search.at(n, search.settings.seeds, "tuning")
            ]
            cells = [
                *(tuning if tuned else []),
                *(search.at(BEST, [search.cell.seed], "report")[0] for search in chosen),
            ]
        for cell in cells:
            score = 0.9 if cell.protocol.lr == 1e-3 else 0.5
            own = {
                "cell": cell.identity,
                "id": cell.id,
                "schema": SCHEMA,
                "purpose": cell.purpose,
                "curve": [a_point(score)],
            }
            store.put(a_result(cell.model.label, cell.seed, score) | own | more)
        return tmp_path / "kept"

    return kept


def named(cells: Any) -> list[tuple[str, int]]:
    return [(cell.model.label, cell.seed) for cell in cells]


def test_named_models_take_the_place_of_the_suites_with_what_it_sets_for_them() -> None:
    plan = plan_comparison(["retnet", "gla"], SUITE, seeds="4-5", device="cpu")
    assert named(plan.cells) == [("retnet", 4), ("retnet", 5), ("gla", 4), ("gla", 5)]
    settings: list[Any] = [layer.settings for cell in plan.cells for layer in cell.model.layers]
    assert [each.heads for each in settings] == [2, 2, 4, 4]
    assert {cell.model.form for cell in plan.cells} == {"native"}
    assert {
        cell.model.form
        for cell in plan_comparison(["retnet", "gla"], SUITE, form="controlled", device="cpu").cells
    } == {"controlled"}


def test_a_system_is_compared_as_a_whole() -> None:
    cells = plan_comparison(["samba", "gla"], SUITE, seeds="4", device="cpu").cells
    assert named(cells) == [("samba", 4), ("gla", 4)]
    assert [len(cell.model.layers) for cell in cells] == [2, 1]


def test_what_is_stored_elsewhere_is_read_and_the_suites_own_models_are_never_run(
    keep: Callable[..., Path],
) -> None:
    plan = plan_comparison(["retnet"], SUITE, against=str(keep(SUITE, "deltanet")), device="cpu")
    assert named(plan.cells) == [("retnet", 0), ("retnet", 1)]
    assert sorted((r["label"], r["cell"]["seed"]) for r in plan.known.values()) == [
        ("deltanet", 0),
        ("deltanet", 1),
    ]
    assert list(plan.left_out) == ["model gla"]
    both = plan_comparison(["retnet", "deltanet"], SUITE, against=str(keep(SUITE, "deltanet")), device="cpu")
    assert named(both.cells) == named(plan.cells), "what is stored of a named model is not run again"


def test_the_first_is_compared_with_what_was_read(
    keep: Callable[..., Path], a_result: Callable[..., Any], tmp_path: Path
) -> None:
    plan = plan_comparison(["retnet"], SUITE, against=str(keep(SUITE, "deltanet", "gla")), device="cpu")
    mine = [
        a_result("retnet", cell.seed, 0.9 + cell.seed / 100) | {"cell": cell.identity} for cell in plan.cells
    ]
    (table,) = plan.tables(mine, Store(tmp_path / "not there"))
    assert [line.row.label for line in table.lines] == ["retnet", "deltanet", "gla"]
    assert [line.difference is None or line.difference.mean < 0 for line in table.lines] == [True] * 3
    assert [line.verdict is None for line in table.lines] == [True, False, False]


def test_the_training_is_that_of_the_suite_or_what_is_asked() -> None:
    def trained(**asked: Any) -> set[tuple[int, int]]:
        cells = plan_comparison(["deltanet", "gla"], SUITE, device="cpu", **asked).cells
        return {(cell.protocol.tokens, cell.protocol.rungs) for cell in cells}

    ((usual, _),) = trained()
    assert trained(budget=5000) == {(5000, 1)}
    assert trained(protocol="converged") == {(usual, 6)}
    ladders = SUITE.model_copy(
        update={
            "protocol": "converged",
            "models": (SuiteModel.parse({"model": "gla", "set": {"protocol.tokens": 7}}, where="m"),),
        }
    )
    plan = plan_comparison(["deltanet", "gla"], ladders, budget=5000, device="cpu")
    assert {(cell.protocol.tokens, cell.protocol.rungs) for cell in plan.cells} == {(5000, 1)}


@pytest.mark.parametrize("asked", [{"budget": 5000}, {"budget": 5000, "protocol": "converged"}])
def test_a_budget_that_would_not_count_is_refused(asked: dict[str, Any]) -> None:
    suite = SUITE.model_copy(update={"set": {**SUITE.set, "protocol.epochs": 2, "protocol.examples": 64}})
    with pytest.raises(UserError, match="--budget"):
        plan_comparison(["deltanet", "gla"], suite, device="cpu", **asked)


def test_speeds_are_read_from_both_stores(
    keep: Callable[..., Path], a_result: Callable[..., Any], tmp_path: Path
) -> None:
    plan = plan_comparison(["retnet"], SUITE, against=str(keep(SUITE, "deltanet")), device="cpu")
    mine = [a_result("retnet", cell.seed, 0.9) | {"cell": cell.identity} for cell in plan.cells]
    own = Store(tmp_path / "own")
    own.prepare()
    for store, result in ((plan.stores[0], next(iter(plan.known.values()))), (own, mine[0])):
        speed = a_speed(result["label"], bench={"layer": layer_of(result)})
        store.put(speed | {"schema": SCHEMA, "id": digest(speed["id"])})
    (table,) = plan.tables(mine, own)
    assert len(table.layer_speeds["mqar"]["train"].rates) == 2


def test_what_failed_elsewhere_or_is_of_other_code_is_not_read(keep: Callable[..., Path]) -> None:
    folder = str(keep(SUITE, "deltanet", status="failed", metrics={}))
    assert named(plan_comparison(["deltanet", "retnet"], SUITE, against=folder, device="cpu").cells)[:2] == [
        ("deltanet", 0),
        ("deltanet", 1),
    ]
    with pytest.raises(
        UserError,
        match=r"nothing of the suite is stored in .* as this linbench would run it on cpu; name a folder",
    ):
        plan_comparison(["retnet"], SUITE, against=folder, device="cpu")


def test_rates_that_were_searched_for_are_read_where_their_search_is(keep: Callable[..., Path]) -> None:
    plan = plan_comparison(["retnet"], SEARCHED, against=str(keep(SEARCHED, "deltanet")), device="cpu")
    assert {result["cell"]["protocol"]["settings"]["lr"] for result in plan.known.values()} == {1e-3}
    assert {result["cell"]["seed"] for result in plan.known.values()} == {0, 1}


def test_rates_whose_search_is_not_there_are_not_guessed(keep: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="nothing of the suite is stored"):
        plan_comparison(
            ["retnet"], SEARCHED, against=str(keep(SEARCHED, "deltanet", tuned=False)), device="cpu"
        )


def test_the_reference_is_what_comes_with_linbench() -> None:
    found = [str(store.folder) for store in stores_at("reference")]
    assert any(folder.endswith("reference/cpu") for folder in found)
    assert any(folder.endswith("reference/h200") for folder in found)


@pytest.mark.parametrize(
    ("models", "more", "sentence"),
    [
        (
            ["deltanet"],
            {},
            "one variant alone is compared with nothing; name another, or --against reference.",
        ),
        (["deltanet", "deltanet"], {}, "one variant alone is compared with nothing"),
        (
            ["deltanet", "gla"],
            {"against": "nowhere"},
            "there are no results in nowhere to compare against; name a folder that has some, or reference.",
        ),
        (
            ["deltanet"],
            {"against": "refrence"},
            "there are no results in refrence to compare against; did you mean 'reference'?",
        ),
        (
            ["deltanet", "deltanat"],
            {},
            "deltanat cannot be compared on this suite: unknown model 'deltanat'; did you mean 'deltanet'?",
        ),
        (
            ["deltanet", "base_conv"],
            {"form": "controlled"},
            (
                "base_conv cannot be compared on this suite: base_conv has no controlled form. In the native"
                " form"
            ),
        ),
        (
            ["base_conv", "deltanet"],
            {"form": "controlled"},
            "base_conv cannot be compared on this suite: base_conv has no controlled form.",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(
    models: list[str], more: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UserError) as refused:
        plan_comparison(models, SUITE, device="cpu", **more)
    assert sentence in str(refused.value)
