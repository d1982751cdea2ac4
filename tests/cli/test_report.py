"""The verbs that show what is stored."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


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


def test_a_format_that_is_none(linbench: Callable[..., Any]) -> None:
    ended = linbench("figures", "--formats", "png,svgg")
    assert (ended.code, ended.err) == (2, "linbench: unknown format 'svgg'; did you mean 'svg'? Allowed: pdf, png, svg.\n")


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_the_report_is_one_file(linbench: Callable[..., Any]) -> None:
    ended = linbench("report")
    assert (ended.code, ended.out) == (0, "results/report.html\n")
    assert Path("results/report.html").read_text().startswith("<!DOCTYPE html>")
    (torn,) = list(Path("results").glob("*.json"))[:1]
    torn.write_text("{")
    ended = linbench("report", "--save", "elsewhere/page.html")
    assert ended.code == 0
    assert "unreadable" in ended.err
    assert f"{torn.name}.unreadable-0" in Path("elsewhere/page.html").read_text()


def test_no_report_of_what_is_not_there_or_into_what_cannot_be_written(linbench: Callable[..., Any]) -> None:
    assert linbench("report").code == 6
    Path("results").mkdir()
    Path("file").write_text("in the way")
    ended = linbench("report", "--save", "file/report.html")
    assert (ended.code, ended.err.count("\n")) == (6, 1)
