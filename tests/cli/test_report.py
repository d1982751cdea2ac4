"""The verbs that show what is stored."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from linbench.common.hashing import digest
from linbench.experiments.cell import SCHEMA
from linbench.results.store import Store
from tests.helpers.records import a_point


@pytest.fixture
def stored(linbench: Callable[..., Any], tiny: list[str]) -> None:
    """Two models in the folder of results."""
    assert linbench("run", "mqar", "--model", "deltanet,attention", *tiny).code == 0


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_tables_in_every_format(linbench: Callable[..., Any]) -> None:
    latex = linbench("table", "--format", "latex").out
    assert latex.count("\\begin{tabular}") == latex.count("\\end{tabular}") == latex.count("\\toprule") == 1
    assert linbench("table", "--format", "json").out == linbench("table", "--json").out
    assert linbench("table", "--format", "csv").out.startswith("model,accuracy")
    assert linbench("table", "--format", "markdown").out == linbench("table").out
    ended = linbench("table", "--save", "tables")
    assert ended.out == ""
    written = json.loads(linbench("table", "--save", "tables", "--json").out)
    assert sorted(Path(each["file"]) for each in written) == sorted(Path("tables").iterdir())
    assert {path.suffix for path in Path("tables").iterdir()} == {".md", ".csv", ".tex", ".json"}
    (path,) = Path("tables").glob("*.json")
    assert [json.loads(path.read_text())] == json.loads(linbench("table", "--json").out)


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_figures_in_the_formats_that_are_asked_for(linbench: Callable[..., Any]) -> None:
    ended = linbench("figures", "learning-curves", "--formats", "svg,pdf", "--save", "drawn")
    assert ended.code == 0, ended.err
    assert sorted(Path(line).suffix for line in ended.out.splitlines()) == [".pdf", ".svg", ".txt"]
    assert all(Path(line).is_file() for line in ended.out.splitlines())
    told = json.loads(
        linbench("figures", "learning-curves", "--formats", "svg,pdf", "--save", "drawn", "--json").out
    )
    assert [each["file"] for each in told] == ended.out.splitlines()


def test_a_format_that_is_none(linbench: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    ended = linbench("figures", "--formats", "png,svgg")
    assert ended.code == 2
    assert ended.err == snapshot


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_the_report_is_one_file(linbench: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    ended = linbench("report")
    assert (ended.code, ended.out) == (0, "results/report.html\n")
    assert Path("results/report.html").read_text().startswith("<!DOCTYPE html>")
    told = json.loads(linbench("report", "--json").out)
    assert (told["file"], told["results"] >= 1, told["set_aside"]) == ("results/report.html", True, [])
    (torn,) = list(Path("results").glob("*.json"))[:1]
    torn.write_text("{")
    ended = linbench("report", "--save", "elsewhere/page.html")
    assert ended.code == 0
    assert ended.err.count(str(torn)) == 1
    assert ended.err.replace(str(torn), "FILE") == snapshot
    assert torn.name in Path("elsewhere/page.html").read_text()
    assert torn.read_text() == "{"


def test_no_report_of_what_is_not_there_or_into_what_cannot_be_written(
    linbench: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    assert linbench("report").code == 6
    Path("results").mkdir()
    Path("file").write_text("in the way")
    ended = linbench("report", "--save", "file/report.html")
    assert (ended.code, ended.err.count("\n")) == (6, 1)
    for verb in (
        ["report", "--save", "file/report.html"],
        ["table", "--save", "file"],
        ["figures", "--save", "file"],
    ):
        assert linbench(*verb).err.splitlines()[-1] == snapshot(name=verb[0])


def test_where_there_is_nothing_to_draw_that_is_said(
    linbench: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    Path("results").mkdir()
    ended = linbench("figures", "learning-rates")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == snapshot


@pytest.mark.slow
def test_each_figure_that_shows_nothing_is_named_and_an_empty_folder_is_told(
    linbench: Callable[..., Any], a_result: Callable[..., Any], snapshot: SnapshotAssertion
) -> None:
    kept = Store("results")
    kept.prepare()
    ended = linbench("table")
    assert ended.code == 0
    assert ended.err == snapshot(name="table")
    assert linbench("report").err == snapshot(name="report")
    result = a_result(
        "deltanet",
        curve=[{"step": i, "tokens": 100 * i, "accuracy": i / 3, "loss": 1.0, "nll": 1.0} for i in (1, 2)],
    )
    kept.put(result | {"id": digest(result["id"]), "schema": SCHEMA})
    ended = linbench("figures", "learning-curves", "learning-rates")
    assert ended.err == snapshot(name="learning-rates")
    assert ended.out


def test_what_the_report_says_of_claims_rests_on_folders_below_too(
    linbench: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    a_result: Callable[..., Any],
    snapshot: SnapshotAssertion,
) -> None:
    import linbench.claims.report_section as shown

    read: list[set[str]] = []
    monkeypatch.setattr(shown, "claim_sections", lambda stored: read.append(set(stored.results)) or [])
    for folder, seed in (("results", 0), ("results/claims", 1)):
        store = Store(folder)
        store.prepare()
        result = a_result(seed=seed, curve=[a_point()])
        store.put(result | {"id": digest(result["id"]), "schema": SCHEMA})
    ended = linbench("report")
    assert ended.code == 0, ended.err
    assert [len(ids) for ids in read] == [2]
    (whole,) = re.findall(r"1 model on mqar [^<]*", Path("results/report.html").read_text())
    assert whole == snapshot
