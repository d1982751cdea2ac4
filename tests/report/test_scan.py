"""Figures and tables are found where they lie."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import linbench.report.figures as figures_package
import linbench.report.tables as tables_package
from linbench.common.hashing import digest
from linbench.experiments.cell import SCHEMA
from linbench.report.figures import figure_names, figures
from linbench.report.page.page import page
from linbench.report.tables import table_kinds
from linbench.results.store import Store
from tests.helpers.records import a_point

FIGURE = """
from linbench.report.figure import ComparisonFigure


def draw(sheet, comparison):
    sheet.add_subplot().bar([row.label for row in comparison.rows], [row.mean for row in comparison.rows])
    return True


FIGURE = ComparisonFigure(name="added-bars", draw=draw, caption="Bars of a test.")
"""

TABLE = """
from linbench.report.table import Cell, Column, Table
from linbench.report.tables import TableKind


def tables(data):
    columns = (Column("device", numeric=False), Column("results"))
    row = (Cell("all"), Cell(str(len(data.cells)), len(data.cells)))
    return [Table("Added", columns, (row,), "Counts of a test.", "added")]


TABLES = TableKind("added", tables)
"""

TABLE_OF_A_COMPARISON = """
from linbench.report.table import Cell, Column, Table
from linbench.report.tables import comparison_kind


def table(comparison):
    columns = (Column("task", numeric=False), Column("models"))
    row = (Cell(comparison.task), Cell(str(len(comparison.rows)), len(comparison.rows)))
    return Table("Beside", columns, (row,), "Models of a test.", "beside")


TABLES = comparison_kind("added beside", table, order=90)
"""


ROOT = Path(__file__).parents[2]


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A figure and two kinds of tables in folders of their own, by the package that finds them."""
    folders: dict[str, Path] = {}
    for package, name, text in (
        (figures_package, "added_bars", FIGURE),
        (tables_package, "added_counts", TABLE),
        (tables_package, "added_beside", TABLE_OF_A_COMPARISON),
    ):
        folder = folders[package.__name__] = tmp_path / package.__name__
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(text)
        if str(folder) not in package.__path__:
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        monkeypatch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)
    return folders


@pytest.fixture
def stored(a_result: Any, tmp_path: Path) -> list[Any]:
    """Two results, which are kept in the folder that is called results."""
    store = Store(tmp_path / "results")
    store.prepare()
    found = []
    for label in ("deltanet", "gla"):
        result = a_result(label, curve=[a_point()])
        found.append(result | {"id": digest(result["id"]), "schema": SCHEMA})
        store.put(found[-1])
    return found


def test_every_figure_has_the_name_of_its_module() -> None:
    assert sorted(figure.name for figure in figures()) == figure_names()


@pytest.mark.usefixtures("added", "stored")
def test_an_added_figure_is_drawn_on_the_command_line(linbench: Callable[..., Any]) -> None:
    assert "added-bars" in figure_names()
    drawn = linbench("figures", "added-bars", "--results", "results", "--save", "drawn", "--formats", "svg")
    assert drawn.code == 0, drawn.err
    (picture,) = Path("drawn").glob("*-added-bars.svg")
    assert "deltanet" in picture.read_text()
    assert picture.with_suffix(".txt").read_text().startswith("Bars of a test.")
    misspelt = linbench("figures", "aded-bars", "--results", "results")
    assert misspelt.code == 2
    assert "added-bars" in misspelt.err


@pytest.mark.slow
def test_an_added_figure_is_in_the_help(added: dict[str, Path]) -> None:
    """Help is made when the verb is loaded, so a process of its own is asked for it."""
    folder = added[figures_package.__name__]
    program = (
        f"from linbench.report import figures; figures.__path__.append({str(folder)!r});"
        "from linbench.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "figures", "--help"],
        text=True,
        capture_output=True,
        check=True,
        env={"PYTHONPATH": str(ROOT), "COLUMNS": "400"},
    )
    assert "added-bars" in ended.stdout


@pytest.mark.usefixtures("added", "stored")
def test_an_added_table_is_printed_and_written_on_the_command_line(linbench: Callable[..., Any]) -> None:
    assert "added" in [kind.name for kind in table_kinds()]
    printed = linbench("table", "--results", "results", "--format", "markdown")
    assert printed.code == 0, printed.err
    assert "### Added" in printed.out
    assert "Counts of a test." in printed.out
    assert printed.out.index("### Beside") < printed.out.index("### Added"), "in their order"
    written = linbench("table", "--results", "results", "--save", "written")
    assert written.code == 0, written.err
    assert {path.suffix for path in Path("written").glob("added.*")} == {".md", ".csv", ".tex", ".json"}
    assert json.loads(Path("written/added.json").read_text())["rows"] == [{"device": "all", "results": 2}]
    with Path("written/added.csv").open() as rows:
        assert list(csv.DictReader(rows)) == [{"device": "all", "results": "2"}]


@pytest.mark.usefixtures("added")
def test_all_are_in_the_report_those_of_a_comparison_beside_it(stored: list[Any]) -> None:
    before, _, section = page(stored, title="mine").partition('class="section comparison"')
    assert "Bars of a test." in section
    assert "Models of a test." in section
    assert "Counts of a test." in before
