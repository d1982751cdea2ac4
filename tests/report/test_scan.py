"""Figures and tables are found where they lie."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import linbench.report.figures as figures_package
import linbench.report.tables as tables_package
from linbench.report.figures import figure_names, figures
from linbench.report.tables import table_kinds

FIGURE = """
from linbench.report.figure import ComparisonFigure


def draw(sheet, comparison):
    sheet.add_subplot().bar([row.label for row in comparison.rows], [row.mean for row in comparison.rows])
    return True


FIGURE = ComparisonFigure(name="added-bars", draw=draw, caption="Bars that a test has added.")
"""

TABLE = """
from linbench.report.table import Cell, Column, Table
from linbench.report.tables import TableKind


def tables(data):
    columns = (Column("device", numeric=False), Column("results"))
    return [Table("Added", columns, ((Cell("all"), Cell(str(len(data.cells)), len(data.cells))),), "Counts.", "added")]


TABLES = TableKind("added", tables)
"""


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One figure and one table in folders of their own."""
    for package, name, text in (
        (figures_package, "added_bars", FIGURE),
        (tables_package, "added_counts", TABLE),
    ):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.delitem(__import__("sys").modules, f"{package.__name__}.{name}", raising=False)
    return


def test_every_figure_has_the_name_of_its_module() -> None:
    assert sorted(figure.name for figure in figures()) == figure_names()


@pytest.mark.usefixtures("added")
def test_a_figure_and_a_table_from_elsewhere_are_drawn_and_written_like_all_others(
    linbench: Callable[..., Any], a_result: Any, tmp_path: Path
) -> None:
    from linbench.report.data import ReportData
    from linbench.report.figures import drawings
    from linbench.report.page.page import page
    from linbench.report.tables import all_tables

    assert "added-bars" in figure_names()
    assert "added" in [kind.name for kind in table_kinds()]
    data = ReportData([a_result("deltanet"), a_result("gla")])
    (drawing,) = drawings(data, ["added-bars"])
    assert b"<svg" in drawing.pictures(["svg"])["svg"]
    assert drawing.caption.startswith("Bars that a test has added.")
    (table,) = (table for table in all_tables(data, printed=True) if table.slug == "added")
    assert [path.name for path in table.save(tmp_path)] == [
        "added.md",
        "added.csv",
        "added.tex",
        "added.json",
    ]
    assert json.loads((tmp_path / "added.json").read_text())["rows"] == [{"device": "all", "results": 2}]
    text = page(data.cells, title="mine")
    assert "Bars that a test has added." in text
    assert "Counts." in text
