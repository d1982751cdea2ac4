"""`linbench reproduce`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.reproduction import table as files
from linbench.results.store import Store
from tests.helpers.published import small_table
from tests.helpers.records import as_if_on

HERE = ("--device", "cpu", "--workers", "0", "--results", "mine")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the small table alone, and no results that linbench ships."""
    table = small_table()
    monkeypatch.setattr("linbench.cli.reproduce.DEFAULT", (Path("results"),))
    monkeypatch.setattr(files, "reproductions", lambda: {"R1": table})


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_every_table_has_a_line(linbench: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    ended = linbench("reproduce", "--device", "cpu")
    assert (ended.code, lines(ended.out)) == (0, snapshot)


def test_a_table_by_its_name_is_shown_value_by_value(
    linbench: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    assert lines(linbench("reproduce", "r1", "--device", "cpu").out) == snapshot
    (shown, waits) = json.loads(linbench("reproduce", "R1", "--device", "cpu", "--json").out)
    assert (shown["printed"], shown["left"], shown["verdict"]) == ("90", 4, "not comparable")
    assert waits["why"] == "needs other"


def test_a_plan_tells_runs_and_tokens_and_runs_nothing(
    linbench: Callable[..., Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    words = ("reproduce", "R1", "--dry-run", "--device", "cpu")
    assert lines(linbench(*words).out) == snapshot
    (row,) = json.loads(linbench(*words, "--json").out)
    assert row == {"table": "R1", "runs": 4, "left": 4, "tokens": 4 * 640, "seconds": None}
    assert not [*tmp_path.rglob("*.json")]


def test_switches_are_shown_and_planned(linbench: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    words = ("reproduce", "R1", "--switches", "--device", "cpu")
    assert lines(linbench(*words).out) == snapshot
    (shown,) = json.loads(linbench(*words, "--json").out)
    assert (shown["switch"], shown["change"], shown["after"]) == ("no convolution", None, [])
    (plan,) = json.loads(linbench(*words, "--dry-run", "--json").out)
    assert (plan["runs"], plan["left"]) == (8, 8)


def test_a_part_is_shown_and_planned_of_one_table(
    linbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    (shown,) = json.loads(linbench("reproduce", "R1", "--row", "delta*", "--device", "cpu", "--json").out)
    assert shown["model"] == "deltanet"
    words = ("reproduce", "R1", "--row", "other", "--device", "cpu", "--dry-run", "--json")
    assert [plan["runs"] for plan in json.loads(linbench(*words).out)] == [0]
    both = {"R1": small_table(), "R2": small_table()}
    monkeypatch.setattr(files, "reproductions", lambda: both)
    ended = linbench("reproduce", "--row", "deltanet")
    assert (ended.code, ended.out, ended.err) == (2, "", snapshot)


@pytest.mark.slow
def test_what_is_missing_is_run_and_is_not_run_again(linbench: Callable[..., Any], tmp_path: Path) -> None:
    ended = linbench("reproduce", "R1", "--run", *HERE, "--json")
    assert ended.code == 0, ended.err
    ours, _ = json.loads(ended.out)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "mine").glob("*.json")}
    assert len(kept) == 4
    assert max(ours["seeds"]) == ours["ours"]
    assert len(ours["seeds"]) == 2
    assert ours["difference"] == pytest.approx(ours["ours"] - 90)
    again = linbench("reproduce", "R1", "--run", *HERE, "--json")
    assert json.loads(again.out)[0] == ours
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "mine").glob("*.json")} == kept
    (plan,) = json.loads(linbench("reproduce", "R1", "--dry-run", *HERE[:2], *HERE[4:], "--json").out)
    assert (plan["left"], plan["tokens"], plan["seconds"]) == (0, 0, 0)
    theirs = Store("theirs")
    theirs.prepare()
    for result in Store("mine").all()[1:]:
        theirs.put(as_if_on("NVIDIA T4", result))
    words = ("reproduce", "R1", "--dry-run", "--device", "t4", "--results", "theirs", "--json")
    (plan,) = json.loads(linbench(*words).out)
    assert (plan["left"], plan["seconds"] > 0) == (1, True)


@pytest.mark.slow
def test_where_one_seed_chooses_the_others_run_at_what_it_chose(
    linbench: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = small_table(select="best rate")
    monkeypatch.setattr(files, "reproductions", lambda: {"R1": table})
    ended = linbench("reproduce", "R1", "--run", *HERE, "--json")
    ours, _ = json.loads(ended.out)
    assert len([*(tmp_path / "mine").glob("*.json")]) == 3
    assert (len(ours["seeds"]), ours["seeds"][0]) == (2, ours["ours"])
    page, picture = tmp_path / "page.md", tmp_path / "page" / "published-and-ours.svg"
    ended = linbench("reproduce", "R1", "--save", "page.md", *HERE[:2], *HERE[4:], "--json")
    assert json.loads(ended.out)[0] == ours
    assert f"{ours['ours']:.1f}" in page.read_text(encoding="utf-8")
    assert picture.is_file()


@pytest.mark.parametrize(
    "words",
    [
        ["R2"],
        ["R1", "--run", "--dry-run"],
        ["R1", "--dry-run", "--save", "page.md"],
        ["R1", "--row", "delta"],
        ["R1", "--column", "lng"],
        ["R1", "--save", "nowhere/page.md"],
        ["R1", "--results", "nowhere"],
        ["R1", "--run", "--results", "mine", "--results", "nowhere"],
    ],
    ids=" ".join,
)
def test_mistakes_are_told_in_one_sentence(
    linbench: Callable[..., Any], words: list[str], snapshot: SnapshotAssertion
) -> None:
    ended = linbench("reproduce", *words)
    assert ended.out == ""
    assert not Path("mine").exists(), "nothing was run"
    assert (ended.code, ended.err) == snapshot
