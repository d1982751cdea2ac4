import json
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.report.data import ReportData
from linbench.report.page.page import page
from linbench.report.tables import all_tables
from linbench.report.tables.tokens_to_learn import table
from linbench.results.comparison import comparisons
from tests.helpers.learning import GRID, a_curve, learners

Make = Callable[..., Any]
GROUPS = {"attention": [100] * 6, "deltanet": [400, 400, 400, 800, 1600, inf], "gla": [inf] * 6}


@pytest.fixture
def results(a_result: Make) -> list[Any]:
    """Six seeds each of three variants, in millions of tokens, and one that failed."""
    found = [one for name, times in GROUPS.items() for one in learners(a_result, name, times)]
    for result in found:
        result["curve"] = [{**point, "tokens": point["tokens"] * 10_000} for point in result["curve"]]
    return [*found, a_result("kda", status="failed", metrics={})]


def test_a_row_has_the_seeds_that_learned_the_median_with_its_interval_and_p(results: list[Any]) -> None:
    shown = table(comparisons(results)[0])
    assert shown is not None
    assert shown.frame.drop(columns="marks").to_numpy().tolist() == [
        ["attention", "6 of 6", "1.00 M", "0 to 1.00 M", "fastest"],
        ["deltanet", "5 of 6", "4.00 M", "from 2.00 M", "0.006"],
        ["gla", "0 of 6", "> 16.0 M", "from 16.0 M", "0.006"],
        ["kda", "–", "–", "–", "–"],
    ]


def test_its_numbers_are_for_programs(results: list[Any], tmp_path: Path) -> None:
    shown = table(comparisons(results)[0])
    assert shown is not None
    rows = {row["model"]: row for row in json.loads(json.dumps(shown.to_json()))["rows"]}
    names = ("seeds", "learned", "median_tokens", "low", "high", "fastest")
    million = 1_000_000
    assert {label: tuple(row[name] for name in names) for label, row in rows.items()} == {
        "attention": (6, 6, million, None, million, True),
        "deltanet": (6, 5, 4 * million, 2 * million, None, False),
        "gla": (6, 0, None, 16 * million, None, False),
        "kda": (0, 0, None, None, None, False),
    }
    (csv,) = (path for path in shown.save(tmp_path) if path.suffix == ".csv")
    assert csv.name == "mqar-quick-native-tokens-to-learn.csv"
    read = pd.read_csv(csv).set_index("model")
    assert read.loc["deltanet", "median_tokens"] == 4 * million
    assert read["tokens_trained"].tolist() == [GRID[-1] * 10_000] * 4


def test_the_caption_says_what_so_few_seeds_can_show(
    a_result: Make, results: list[Any], snapshot: SnapshotAssertion
) -> None:
    captions = []
    for groups in (GROUPS, {name: times[:3] for name, times in GROUPS.items()}, {"attention": [100] * 5}):
        runs = [one for name, times in groups.items() for one in learners(a_result, name, times)]
        shown = table(comparisons(runs)[0])
        assert shown is not None
        assert ("p" in shown.names) == (len(groups) > 1)
        captions.append(shown.caption.split(". "))
    assert captions == snapshot


def test_the_caption_says_what_becomes_of_flat_ladders(a_result: Make, snapshot: SnapshotAssertion) -> None:
    ladder = {"ended": "flat", "most": 4, "rungs": [{"tokens": GRID[-1], "accuracy": 0.125}]}
    runs = learners(a_result, "attention", [100, inf], ladder=ladder)
    shown = table(comparisons(runs)[0])
    assert shown is not None
    assert shown.caption.split(". ")[1] == snapshot


def test_without_two_seeds_or_anyone_who_learned_there_is_none(a_result: Make) -> None:
    for groups in ({"attention": [100], "deltanet": [200]}, {"attention": [inf] * 5}):
        runs = [one for name, times in groups.items() for one in learners(a_result, name, times)]
        assert table(comparisons(runs)[0]) is None
        assert not [one for one in all_tables(ReportData(runs)) if one.slug.endswith("tokens-to-learn")]
    assert table(comparisons([a_result("kda", status="failed", metrics={})])[0]) is None


def test_it_is_printed(results: list[Any]) -> None:
    printed = all_tables(ReportData(results), printed=True)
    assert [one.slug for one in printed] == ["mqar-quick-native", "mqar-quick-native-tokens-to-learn"]


def test_the_report_shows_it_beside_its_comparison(a_result: Make, results: list[Any]) -> None:
    other = [a_result("gla", seed, kv_pairs=4, curve=a_curve(inf)) for seed in (0, 1)]
    parts = page([*results, *other], title="t").split('class="section comparison"')[1:]
    having = ["<summary>Tokens to learn</summary>" in one for one in parts]
    assert sorted(having) == [False, True]
    (own,) = (one for one, has in zip(parts, having, strict=True) if has)
    assert "5 of 6" in own
    assert "Kaplan and Meier" in own
