"""One rule for every model's learning rate."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any

import pytest

import linbench
from linbench.common.errors import UserError
from linbench.engine import lr_search as what
from linbench.engine.jobs import Job, Message
from linbench.engine.lr_search import run_searched
from linbench.engine.progress import NoProgress
from linbench.engine.rate_search import RateScore, Search
from linbench.engine.runner import NextCells
from linbench.engine.workers import ArgumentQueue, Outcome
from linbench.experiments.cell import SCHEMA, Cell, Purpose
from linbench.experiments.learning_rates import SearchSettings, default_search, learning_rate
from linbench.results.record import NO_VERDICT
from linbench.results.schema import Result
from linbench.results.store import Store
from tests.helpers.cells import plan
from tests.helpers.records import a_point, a_record

SETTINGS = SearchSettings(lowest=-8, rates=5, extensions=2, seeds=(100, 101), refine=False)
REFINED = SETTINGS.model_copy(update={"refine": True})
GRID = [1e-4, 3.16e-4, 1e-3, 3.16e-3, 1e-2]


def cells(models: Sequence[str] = ("deltanet",), seeds: Sequence[int] = (0, 1)) -> list[Cell]:
    return plan("mqar", list(models), device="cpu", seeds=seeds)


class Runs:
    """Instead of training: an accuracy or another status than `ok` for every learning rate, and a list of
    what was asked for."""

    def __init__(self, accuracy: Callable[[Cell], float | str]) -> None:
        self.accuracy = accuracy
        self.asked: list[Cell] = []

    def __call__(self, cells: Sequence[Cell], *_: Any, next_cells: NextCells, **__: Any) -> list[Result]:
        found: dict[str, Result] = {}
        while new := [cell for cell in cells if cell.id not in found]:
            self.asked += new
            found |= {cell.id: self.result(cell) for cell in new}
            cells = list(next_cells(found))
        return list(found.values())

    def result(self, cell: Cell) -> Result:
        accuracy = self.accuracy(cell)
        status = accuracy if isinstance(accuracy, str) else "ok"
        return a_record(cell.id) | {
            "label": cell.model.label,
            "status": status,
            "chance": 0.125,
            "marks": ["undertrained"],
            "lr": cell.protocol.lr,
            "seed": cell.seed,
            "curve": [a_point(0.9), a_point() | {"accuracy": accuracy}] if status == "ok" else [],
        }

    @property
    def tuned(self) -> list[float]:
        return sorted({cell.protocol.lr for cell in self.asked if cell.purpose == "tuning"})


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Runs, list[Result]]]:
    def run(
        accuracy: Callable[[Cell], float | str],
        asked: Sequence[Cell] | None = None,
        settings: SearchSettings = SETTINGS,
    ) -> tuple[Runs, list[Result]]:
        runs = Runs(accuracy)
        monkeypatch.setattr(what, "run_cells", runs)
        store = Store(tmp_path)
        store.prepare()
        return runs, run_searched(asked or cells(), store, NoProgress(), settings=settings)

    return run


def peaked(at: float) -> Callable[[Cell], float]:
    """Return accuracies that are halved half a decade from a rate."""
    return lambda cell: 1 / (1 + abs(half_decades(cell.protocol.lr) - half_decades(at)))


def half_decades(rate: float) -> float:
    return next(n / 2 for n in range(-40, 10) if learning_rate(n) == rate)


def test_the_grid_has_half_decades_as_they_always_were_bit_for_bit() -> None:
    """A learning rate is part of an identity."""
    settings = SETTINGS.model_copy(update={"lowest": -40, "rates": 53})
    words = [f"{digits}e{decade}" for decade in range(-20, 7) for digits in ("1", "3.16")][:-1]
    assert [learning_rate(n).hex() for n in settings.grid] == [float(word).hex() for word in words]
    assert [learning_rate(n) for n in SETTINGS.grid] == GRID


def test_between_two_rates_of_the_grid_lies_one_a_quarter_decade_from_both() -> None:
    assert [learning_rate(n) for n in range(-12, -7)] == [1e-3, 1.78e-3, 3.16e-3, 5.62e-3, 1e-2]


def test_the_default_is_a_grid_of_five_on_three_seeds_that_is_refined() -> None:
    found = default_search()
    assert [learning_rate(n) for n in found.grid] == GRID
    assert (found.seeds, found.refine) == ((1000, 1001, 1002), True)


@pytest.mark.parametrize(
    ("at", "refined", "best"),
    [
        (1e-3, [5.62e-4, 1.78e-3], 1e-3),
        (1.78e-3, [5.62e-4, 1.78e-3], 1.78e-3),  # of 1e-3 and 3.16e-3, which are equals, the lower
        (5.62e-4, [1.78e-4, 5.62e-4], 5.62e-4),
        (1.78e-2, [5.62e-3, 1.78e-2], 1.78e-2),
        (1e-4, [5.62e-5, 1.78e-4], 1e-4),
    ],
)
def test_the_neighbours_of_the_best_a_quarter_decade_away_are_tried_last(
    searched: Callable[..., tuple[Runs, list[Result]]], at: float, refined: list[float], best: float
) -> None:
    runs, found = searched(peaked(at), settings=REFINED)
    tried = [rate for rate, _ in found[0]["search"]["accuracies"]]
    last = list(dict.fromkeys(cell.protocol.lr for cell in runs.asked if cell.purpose == "tuning"))[-2:]
    assert (last, found[0]["lr"]) == (refined, best)
    assert tried == runs.tuned
    assert set(tried) >= {*GRID, *refined}
    assert len(tried) == len(GRID) + 2 + (at in (1.78e-2, 1e-4))
    assert "lr_edge" not in found[0]["marks"]


def test_an_edge_that_stays_best_is_not_refined(
    searched: Callable[..., tuple[Runs, list[Result]]],
) -> None:
    runs, found = searched(peaked(1e0), settings=REFINED)
    assert runs.tuned == [*GRID, 3.16e-2, 1e-1]
    assert "lr_edge" in found[0]["marks"]


def test_a_refined_rate_without_a_number_is_not_chosen_and_is_told(
    searched: Callable[..., tuple[Runs, list[Result]]],
) -> None:
    found = searched(
        lambda cell: "oom" if cell.protocol.lr == 1.78e-3 else peaked(1e-3)(cell), settings=REFINED
    )[1]
    assert (found[0]["lr"], found[0]["marks"]) == (1e-3, ["undertrained", "lr_untried"])
    assert [1.78e-3, None] in found[0]["search"]["accuracies"]


@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize("extensions", [0, 2])
@pytest.mark.parametrize("at", [1e-4, 1e-3, 5.62e-3, 3.16e-2, 1.0])
def test_a_search_never_adds_more_than_it_foresees(at: float, extensions: int, refine: bool) -> None:
    settings = SETTINGS.model_copy(update={"extensions": extensions, "refine": refine})
    search = Search(cells()[0], settings)
    added, foreseen = [], []
    while search.pending:
        added.append(len(search.pending))
        foreseen.append(search.most_to_come)
        search.record({cell.id: Runs(peaked(at)).result(cell) for cell in search.pending})
    assert foreseen[0] == 2 * (extensions + 2 * refine)
    assert all(sum(added[stage + 1 :]) <= most for stage, most in enumerate(foreseen))
    if at == 1e-3:
        assert added[1:] == [4] * refine
    assert foreseen[-1] == 0 or search.on_edge or not refine


def test_the_best_rate_on_the_tuning_seeds_is_reported_on_others(
    searched: Callable[..., tuple[Runs, list[Result]]],
) -> None:
    runs, found = searched(peaked(3.16e-3))
    assert runs.tuned == GRID
    assert {cell.seed for cell in runs.asked if cell.purpose == "tuning"} == {100, 101}
    assert [(result["lr"], result["seed"]) for result in found] == [(3.16e-3, 0), (3.16e-3, 1)]
    assert found[0]["marks"] == ["undertrained"]
    assert found[0]["search"] == {
        "accuracies": [[1e-4, 0.25], [3.16e-4, 1 / 3], [1e-3, 0.5], [3.16e-3, 1.0], [1e-2, 0.5]],
        "seeds": [100, 101],
        "best": 3.16e-3,
        "edge": False,
        "runs": 10,
        "tokens": 10 * 64 * 7,
    }


@pytest.mark.parametrize(
    ("at", "tried"), [(1e-2, [*GRID, 3.16e-2]), (1e-4, [3.16e-5, *GRID]), (3.16e-2, [*GRID, 3.16e-2, 1e-1])]
)
def test_the_grid_grows_beyond_an_edge_that_is_best(
    searched: Callable[..., tuple[Runs, list[Result]]], at: float, tried: list[float]
) -> None:
    runs, found = searched(peaked(at))
    assert runs.tuned == tried
    assert found[0]["lr"] == at
    assert "lr_edge" not in found[0]["marks"]


def test_a_best_rate_that_stays_on_the_edge_is_marked(
    searched: Callable[..., tuple[Runs, list[Result]]],
) -> None:
    runs, found = searched(peaked(1.0))
    assert runs.tuned == [*GRID, 3.16e-2, 1e-1]
    assert found[0]["lr"] == 1e-1
    assert found[0]["marks"] == ["undertrained", "lr_edge"]


@pytest.mark.parametrize(
    ("accurate", "losses", "ties", "best"),
    [
        (GRID, {}, "loss", 1e-3),
        (GRID[:4], {}, "loss", 3.16e-4),
        (GRID[:4], {}, "upper", 1e-3),
        (GRID[1:3], {}, "loss", 3.16e-4),
        (GRID[1:3], {1e-3: 0.1}, "loss", 1e-3),
        (GRID[1:3], {3.16e-4: 0.1}, "upper", 1e-3),
        (GRID[1:4], {3.16e-4: 0.1, 1e-2: 0.01}, "loss", 3.16e-4),
        (GRID[:4], {1e-4: 0.3, 3.16e-4: 0.2, 1e-3: 0.2, 3.16e-3: 0.2}, "loss", 1e-3),
    ],
)
def test_of_equally_accurate_rates_that_of_the_lowest_loss_is_best_then_the_lower_of_the_middle(
    accurate: list[float], losses: dict[float, float], ties: Any, best: float
) -> None:
    search = Search(cells()[0], SETTINGS.model_copy(update={"ties": ties}))
    curves = {
        n: {
            "accuracy": 1.0 if learning_rate(n) in accurate else 0.5,
            "nll": losses.get(learning_rate(n), 0.5),
        }
        for n in SETTINGS.grid
    }
    search.tried = {
        n: RateScore.of([{"status": "ok", "chance": 0.1, "curve": [curve]}] * 2)
        for n, curve in curves.items()
    }
    assert learning_rate(search.best) == best


def test_the_loss_is_a_mean_over_tuning_seeds_by_whatever_name_and_none_of_a_diverged_run() -> None:
    def run(**last: float) -> Result:
        return {
            "status": "ok",
            "chance": 0.1,
            "curve": [{"accuracy": 1.0, "loss": 9.0, "nll": 9.0}, {"accuracy": 1.0, "loss": 9.0, **last}],
        }

    assert RateScore.of([run(nll=0.1), run(nll=0.3)]) == RateScore(True, 1.0, pytest.approx(0.2))
    assert RateScore.of([run(mse=0.1)]) == RateScore(True, 1.0, 0.1)
    assert RateScore.of([run(nll=0.1), {"status": "diverged", "chance": 0.1, "curve": []}]) == RateScore(
        False, pytest.approx(0.55), inf
    )


def test_the_mean_over_tuning_seeds_decides(searched: Callable[..., tuple[Runs, list[Result]]]) -> None:
    def accuracy(cell: Cell) -> float:
        if cell.protocol.lr == 3.16e-3:
            return 0.8 if cell.seed == 100 else 0.1
        return 0.5 if cell.protocol.lr == 1e-3 else 0.0

    found = searched(accuracy)[1]
    assert found[0]["lr"] == 1e-3
    assert dict(found[0]["search"]["accuracies"])[3.16e-3] == pytest.approx((0.8 + 0.1) / 2)


def test_a_rate_that_diverged_stands_below_all_that_did_not(
    searched: Callable[..., tuple[Runs, list[Result]]],
) -> None:
    scores = dict(zip(GRID, [0.01, 0.06, 0.11, "diverged", 0.9], strict=True))
    runs, found = searched(
        lambda cell: "diverged" if cell.protocol.lr == 1e-2 and cell.seed == 100 else scores[cell.protocol.lr]
    )
    assert runs.tuned == GRID
    assert [(result["lr"], result["marks"]) for result in found] == [(1e-3, ["undertrained"])] * 2
    assert found[0]["search"]["accuracies"][3:] == [
        [3.16e-3, 0.125],
        [1e-2, pytest.approx((0.9 + 0.125) / 2)],
    ]


@pytest.mark.parametrize("status", ["failed", "timeout", "oom"])
def test_a_rate_without_a_number_is_not_chosen_and_takes_the_report_out_of_every_verdict(
    searched: Callable[..., tuple[Runs, list[Result]]], status: str
) -> None:
    def accuracy(cell: Cell) -> float | str:
        if cell.protocol.lr == 3.16e-3:
            return status if cell.seed == 100 else 0.9
        return peaked(1e-3)(cell) / 10

    found = searched(accuracy)[1]
    assert found[0]["lr"] == 1e-3, "though below chance"
    assert found[0]["marks"] == ["undertrained", "lr_untried"]
    assert set(found[0]["marks"]) <= set(NO_VERDICT)
    assert found[0]["search"]["accuracies"][3] == [3.16e-3, None]


def test_a_model_of_which_no_rate_has_a_number_is_told_when_the_others_are_run(
    searched: Callable[..., tuple[Runs, list[Result]]], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no learning rate of deltanet can be chosen"):
        searched(
            lambda cell: "oom" if cell.model.label == "deltanet" else peaked(1e-3)(cell),
            cells(["deltanet", "linear_attention"]),
        )
    kept = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert [(result["label"], result["lr"]) for result in kept] == [("linear_attention", 1e-3)] * 2


def test_every_model_has_its_own_rate(searched: Callable[..., tuple[Runs, list[Result]]]) -> None:
    best = {"deltanet": 1e-3, "linear_attention": 3.16e-3}
    found = searched(lambda cell: peaked(best[cell.model.label])(cell), cells(list(best)))[1]
    assert [(result["label"], result["lr"], result["seed"]) for result in found] == [
        (name, best[name], seed) for name in best for seed in (0, 1)
    ]


def test_a_tuning_seed_is_not_reported(searched: Callable[..., tuple[Runs, list[Result]]]) -> None:
    with pytest.raises(UserError, match="seed 101 is a tuning seed"):
        searched(peaked(1e-3), cells(seeds=[0, 101]))


def test_tuning_seeds_differ() -> None:
    with pytest.raises(UserError, match="tuning seeds must differ"):
        SearchSettings.parse({"lowest": -8, "rates": 5, "extensions": 0, "seeds": [1, 1]}, where="search")


def test_a_rate_beside_a_search_is_refused_in_python_too() -> None:
    with pytest.raises(
        UserError, match=r"protocol\.lr = 0\.001 is given, but the learning rate is also searched for"
    ):
        linbench.run("mqar", "deltanet", search=True, settings={"protocol.lr": 1e-3})


class ByModel:
    """An executor that has a place for every job, and ends those of `first` before any other; `breaks` after
    so many."""

    sharing, places, devices, timeout = 1, 1, 1, 1800.0

    def __init__(self, result: Callable[[Cell], Result], first: str, breaks: int = -1) -> None:
        self.result, self.first, self.breaks = result, first, breaks
        self.over: list[tuple[str, Purpose]] = []

    def alone(self) -> "ByModel":
        return self

    def __call__(
        self, jobs: Iterable[Job | None], *, tell: Callable[[Message], None]
    ) -> Iterator[tuple[int, Outcome]]:
        waiting = ArgumentQueue(jobs)
        running: dict[int, Job] = {}
        while True:
            while following := waiting.next():
                running.update([following])
            if not running:
                return
            if len(self.over) == self.breaks:
                raise KeyboardInterrupt
            place = min(running, key=lambda place: running[place].cells[0].model.label != self.first)
            cells = running.pop(place).cells
            for cell in cells:
                tell(self.result(cell))
            self.over.append((cells[0].model.label, cells[0].purpose))
            yield place, Outcome()


@pytest.fixture
def scored(a_result: Callable[..., Result]) -> Callable[[Cell], Result]:
    def result(cell: Cell) -> Result:
        score = peaked(1.0)(cell)
        return a_result(cell.model.label, cell.seed, score, lr=cell.protocol.lr) | {
            "id": cell.id,
            "schema": SCHEMA,
            "cell": cell.identity,
            "purpose": cell.purpose,
            "curve": [a_point(score)],
        }

    return result


def test_a_search_does_not_wait_for_that_of_another_model(
    scored: Callable[[Cell], Result], tmp_path: Path
) -> None:
    executor = ByModel(scored, "deltanet")
    found = run_searched(
        cells(["linear_attention", "deltanet"]),
        Store(tmp_path),
        NoProgress(),
        settings=SETTINGS,
        executor=executor,
        stack=16,
    )
    one = [*["tuning"] * 3, "report"]  # the grid, and twice the next rate beyond its edge
    assert [label for label, _ in executor.over] == ["deltanet"] * 4 + ["linear_attention"] * 4
    assert [purpose for _, purpose in executor.over] == one * 2
    assert [(result["label"], result["cell"]["seed"], result["marks"]) for result in found] == [
        (label, seed, ["lr_edge"]) for label in ("linear_attention", "deltanet") for seed in (0, 1)
    ]


def test_what_a_search_says_of_a_report_is_kept_though_others_are_broken_off(
    scored: Callable[[Cell], Result], tmp_path: Path
) -> None:
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_searched(
            cells(["linear_attention", "deltanet"]),
            store,
            NoProgress(),
            settings=SETTINGS,
            executor=ByModel(scored, "deltanet", breaks=4),
            stack=16,
        )
    kept = [result for result in store.all() if result["purpose"] == "report"]
    assert [(result["label"], result["marks"], result["search"]["best"]) for result in kept] == [
        ("deltanet", ["lr_edge"], 0.1)
    ] * 2
