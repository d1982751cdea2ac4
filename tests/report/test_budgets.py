"""Tables and figures of accuracy by budget, and every table at a fixed budget."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from syrupy.assertion import SnapshotAssertion

from linbench.common.errors import UserError
from linbench.report.data import ReportData
from linbench.report.figures.budgets import FIGURE
from linbench.report.tables import all_tables, tables_at_budget
from linbench.report.tables.budgets import table
from linbench.results.budgets import at_budget, budget_scores
from linbench.results.comparison import comparisons
from linbench.results.record import UNDERTRAINED
from linbench.results.schema import misfit
from linbench.results.store import Store
from tests.helpers.records import a_record

Climb = Callable[..., list[Any]]


@pytest.fixture
def ladders(climb: Climb) -> list[Any]:
    """Ladders of two variants, of which one has a seed that may go on."""
    return [
        *climb("deltanet", 0, [0.7, 1.0], "optimum"),
        *climb("deltanet", 1, [0.5, 0.6, 0.6, 0.6], "flat"),
        *climb("gla", 0, [0.2, 0.4, 0.8, 1.0], "optimum"),
        *climb("gla", 1, [0.3, 0.5]),
    ]


def test_a_ladder_that_ended_counts_with_its_last_rung_and_one_that_may_go_on_has_no_more(
    ladders: list[Any],
) -> None:
    (found,) = comparisons(ladders)
    deltanet, gla = budget_scores(found.rows)
    assert [score.accuracies for score in deltanet] == [(0.7, 0.5), (1.0, 0.6), (1.0, 0.6), (1.0, 0.6)]
    assert [score.accuracies for score in gla] == [(0.2, 0.3), (0.4, 0.5)]
    assert [(score.doublings, score.tokens) for score in deltanet] == [(n, 1000 << n) for n in range(4)]


def test_a_model_whose_seeds_all_learned_at_once_has_a_score_at_every_budget(climb: Climb) -> None:
    (found,) = comparisons([*climb("deltanet", 0, [1.0], "optimum"), *climb("gla", 0, [0.1, 0.2], "cap")])
    assert [[score.mean for score in own] for own in budget_scores(found.rows)] == [[1.0, 1.0], [0.1, 0.2]]


def test_intervals_are_those_of_students_t_within_0_and_1(climb: Climb) -> None:
    seeds = [climb("gla", seed, [score, 1.0], "optimum") for seed, score in enumerate((0.4, 0.5, 0.6))]
    (found,) = comparisons([result for ladder in seeds for result in ladder])
    first, last = budget_scores(found.rows)[0]
    assert first.interval == pytest.approx((0.5 - 4.303 * 0.1 / 3**0.5, 0.5 + 4.303 * 0.1 / 3**0.5), abs=1e-3)
    assert last.interval == (1.0, 1.0)
    (alone,) = comparisons(climb("gla", 0, [0.5, 1.0], "optimum"))
    assert budget_scores(alone.rows)[0][0].interval is None


def test_the_table_has_a_column_for_each_budget_and_says_how_ladders_ended(ladders: list[Any]) -> None:
    (found,) = comparisons(ladders)
    shown = table(found)
    assert shown
    assert [row[0] for row in shown.texts] == ["deltanet", "gla"]
    assert [row[-1].split(", ") for row in shown.texts] == [
        ["1 flat", "1 optimum"], ["1 not yet", "1 optimum"],
    ]  # fmt: skip
    assert [[cell.number for cell in row[1:-1]] for row in shown.rows] == [
        [pytest.approx(0.6), 0.8, 0.8, 0.8],
        [0.25, 0.45, None, None],
    ]
    records = shown.to_records()
    assert [(one["model"], one["times"]) for one in records] == [
        *(("deltanet", 1 << n) for n in range(4)),
        *(("gla", 1 << n) for n in range(2)),
    ]


def test_what_has_no_rungs_has_no_table_of_budgets(a_result: Callable[..., Any], climb: Climb) -> None:
    for results in ([a_result("gla")], climb("gla", 0, [1.0], "optimum")):
        (found,) = comparisons(results)
        assert table(found) is None
        assert not FIGURE.applies(found)


def test_the_figure_has_a_line_for_each_model_and_bars_where_there_are_seeds(ladders: list[Any]) -> None:
    (found,) = comparisons(ladders)
    sheet = Figure()
    assert FIGURE.draw_on(sheet, found)
    (axes,) = sheet.axes
    lines = [line for line in axes.lines if line.get_marker() not in ("None", None, "")]
    assert sorted(len(line.get_xdata()) for line in lines) == [2, 4]
    assert len(axes.collections) == 4 + 2


@pytest.mark.parametrize(
    ("doublings", "scores", "undertrained"),
    [
        (0, {("deltanet", 0): 0.7, ("deltanet", 1): 0.5, ("gla", 0): 0.2, ("gla", 1): 0.3}, 4),
        (1, {("deltanet", 0): 1.0, ("deltanet", 1): 0.6, ("gla", 0): 0.4, ("gla", 1): 0.5}, 3),
        (2, {("deltanet", 0): 1.0, ("deltanet", 1): 0.6, ("gla", 0): 0.8, ("gla", 1): 0.5}, 3),
        (3, {("deltanet", 0): 1.0, ("deltanet", 1): 0.6, ("gla", 0): 1.0, ("gla", 1): 0.5}, 1),
    ],
)
def test_at_a_budget_ladders_stand_as_they_did_then(
    ladders: list[Any], doublings: int, scores: dict[tuple[str, int], float], undertrained: int
) -> None:
    before = [dict(result) for result in ladders]
    (found,) = comparisons(at_budget(ladders, doublings))
    own = {(one["label"], one["cell"]["seed"]): one["metrics"]["accuracy"] for one in found.results}
    assert own == scores
    assert sum(UNDERTRAINED in result["marks"] for result in found.results) == undertrained
    assert [dict(result) for result in ladders] == before


def test_at_a_budget_a_rung_keeps_what_chose_its_rate_and_no_ladder_is_left_out(
    climb: Climb, a_result: Callable[..., Any]
) -> None:
    search = {"accuracies": [[0.01, 0.5]], "seeds": [1000], "best": 0.01, "edge": True}
    ladder = climb("gla", 0, [0.2, 0.4, 1.0], "optimum")
    ladder[-1] |= {"search": search, "marks": ["lr_edge"]}
    tuning = a_result("gla", 1000, purpose="tuning")
    found = at_budget([*ladder, tuning, a_result("deltanet")], 1)
    assert tuning in found
    (report,) = [result for result in found if result["purpose"] == "report"]
    assert report["label"] == "gla"
    assert (report["search"], report["marks"]) == (search, ["lr_edge"])
    assert report["ladder"]["rungs"] == [{"tokens": 1000, "accuracy": 0.2}, {"tokens": 2000, "accuracy": 0.4}]
    assert misfit(a_record("x", ladder=report["ladder"])) is None


def test_tables_at_a_budget_say_so(ladders: list[Any], snapshot: SnapshotAssertion) -> None:
    tables = tables_at_budget(ReportData(ladders), 2)
    assert [one.slug for one in tables] == [one.slug for one in all_tables(ReportData(ladders))]
    (notes,) = {one.caption[one.caption.index("Ladders stand") :] for one in tables}
    assert notes == snapshot
    captions = [tables_at_budget(ReportData(ladders), times)[0].caption for times in (1, 2, 4)]
    assert [words[words.index("training: ") : words.index(" in batches")] for words in captions] == snapshot


@pytest.mark.parametrize("times", [0, -1, 3, 6])
def test_a_budget_between_rungs_is_refused(ladders: list[Any], times: int) -> None:
    with pytest.raises(UserError, match=f"not {times} times"):
        ReportData(ladders).at_budget(times)


def test_the_command_shows_ladders_at_a_budget(linbench: Callable[..., Any], tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    first, last = (a_record(f"{n:064x}", metrics={"accuracy": 0.25 + n / 2, "nll": 1.0}) for n in (0, 1))
    settings = last["cell"]["protocol"]["settings"] | {"doublings": 1}
    cell = last["cell"] | {"protocol": {"version": 1, "settings": settings}}
    ladder = {"ended": "cap", "most": 2, "rungs": [{"tokens": 64, "accuracy": 0.5}] * 2}
    store.put(first | {"purpose": "rung"})
    store.put(last | {"cell": cell, "ladder": ladder})
    for words, expected in (((), "0.75"), (("--budget", "1"), "0.25"), (("--budget", "2"), "0.75")):
        shown = linbench("table", "--results", str(tmp_path), "--format", "csv", *words).out
        assert expected in shown
    refused = linbench("table", "--results", str(tmp_path), "--budget", "3")
    assert refused.code == 2
