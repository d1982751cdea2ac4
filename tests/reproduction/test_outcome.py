"""Ours beside a printed value, by the paper's rule of choice."""

from statistics import fmean
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.reproduction.choice import Find
from linbench.reproduction.outcome import Outcome, outcomes
from linbench.reproduction.table import Reproduction
from tests.helpers.published import scored, small_table

SCORES = {(0.001, 0): 0.9, (0.001, 1): 0.5, (0.01, 0): 0.8, (0.01, 1): 0.8}
"""The best seed is at one rate, and the best mean at the other."""


def judged(table: Reproduction, find: Find) -> list[Outcome]:
    return outcomes(table, table.runs(), find)


def first(scores: Any = SCORES, changed: Any = None, **changes: Any) -> Outcome:
    return judged(small_table(**changes), scored(scores, **(changed or {})))[0]


@pytest.mark.parametrize(
    ("select", "ours", "mean"),
    [
        ("best", 90.0, 70.0),
        ("best seed", 80.0, 80.0),
        ("best rate", 90.0, 70.0),
        ("mean", 80.0, 80.0),
    ],
)
def test_ours_is_chosen_as_the_paper_chose(select: str, ours: float, mean: float) -> None:
    found = first(select=select)
    assert (found.ours, fmean(found.seeds)) == (pytest.approx(ours), pytest.approx(mean))
    assert found.difference == pytest.approx(ours - 90)
    assert found.verdict == ("within" if ours == 90 else "outside")


def test_the_best_validation_chooses_and_not_the_test() -> None:
    def find(cell: Any) -> Any:
        result = scored(SCORES)(cell)
        assert result is not None
        result["curve"][-1]["accuracy"] = 0.99 if cell.protocol.lr == 0.001 else 0.5
        return result

    found = judged(small_table(select="best validation"), find)[0]
    assert (found.ours, *found.seeds) == pytest.approx((70, 90, 50))


@pytest.mark.parametrize(("select", "left"), [("best rate", 1), ("best validation", 1), ("mean", 2)])
def test_where_one_seed_chooses_the_others_run_at_the_chosen_setting(select: str, left: int) -> None:
    firsts = {(0.001, 0): 0.8, (0.01, 0): 0.9}
    assert first({}, select=select).left == (3 if left == 1 else 4)
    assert first(firsts, select=select).left == left
    chosen = first({**firsts, (0.01, 1): 0.7}, select=select)
    assert (chosen.seeds == pytest.approx((90, 70))) == (left == 1)


def test_of_errors_the_lowest_is_the_best() -> None:
    found = first(unit="error", select="best", rows={"deltanet": [12]})
    assert found.ours == pytest.approx(10)
    assert found.verdict == "within"


def test_scaled_scores_start_at_chance() -> None:
    found = first(unit="scaled", changed={"chance": 0.5}, rows={"deltanet": [60]})
    assert found.ours == pytest.approx(60)


def test_a_test_is_one_of_several_or_their_mean() -> None:
    tests = [
        {"settings": {}, "seq_len": 16, "chance": 0.1, "metrics": {"accuracy": share}, "slices": {}}
        for share in (0.2, 0.6)
    ]
    column = {"task": "mqar", "set": {"task.seq_len": 16, "task.kv_pairs": 2}}
    columns = {"both": column, "second": {**column, "of": 1}}
    table = small_table(columns=columns, rows={"deltanet": [40, 60]})
    found = judged(table, scored(SCORES, tests=tests))
    assert [one.ours for one in found] == pytest.approx([40, 60])


def test_a_run_that_diverged_scores_as_a_guess() -> None:
    found = first(changed={"status": "diverged", "chance": 0.25, "metrics": {}}, rows={"deltanet": [25]})
    assert (found.ours, found.verdict) == (pytest.approx(25), "within")


def test_what_cannot_be_compared_says_why(snapshot: SnapshotAssertion) -> None:
    found = judged(small_table(), scored({}))
    assert [(one.verdict, one.reason, one.left) for one in found] == [
        ("not comparable", "not run yet", 4),
        ("not comparable", "needs other", 0),
    ]
    some = first({key: SCORES[key] for key in list(SCORES)[:3]})
    assert (some.left, some.ours) == (1, None)
    unscored = [first(changed={"status": "oom"}), first(unit="macro")]
    assert [one.reason for one in (some, *unscored)] == snapshot


def test_a_number_that_was_not_verified_cannot_be_missed() -> None:
    missed = {"rows": {"deltanet": [20]}}
    assert first(**missed).verdict == "outside"
    assert first(**missed, trust="card").verdict == "not comparable"
    assert first(trust="card", select="best").verdict == "within"


@pytest.mark.parametrize(
    ("table", "column", "row", "verdict"),
    [
        ("text", None, "card", "not comparable"),
        ("text", "card", None, "not comparable"),
        ("card", "text", None, "outside"),
        ("card", "card", "text", "outside"),
    ],
)
def test_a_row_or_a_column_may_have_been_read_elsewhere(
    table: str, column: str | None, row: str | None, verdict: str
) -> None:
    short = {"task": "mqar", "set": {"task.seq_len": 16, "task.kv_pairs": 2}, "trust": column}
    rows = {"deltanet": {"values": [20], "trust": row}}
    assert first(trust=table, columns={"short": short}, rows=rows).verdict == verdict


def test_classes_are_met_or_missed_whole() -> None:
    assert first(rows={"deltanet": ["solved"]}).verdict == "outside"
    assert first(dict.fromkeys(SCORES, 0.05), rows={"deltanet": ["fails"]}).verdict == "within"
    far = first(dict.fromkeys(SCORES, 0.96), rows={"deltanet": [100]})
    assert (far.verdict, far.reason) == ("outside", "both solved")
