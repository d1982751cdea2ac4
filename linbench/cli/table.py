"""`linbench table`: stored results as tables."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from linbench.cli.options import JsonOption, ResultsOption, warn_ignored_files
from linbench.common import escape
from linbench.common.streams import tell

if TYPE_CHECKING:
    from linbench.report.table import Table


class Format(StrEnum):
    """The form in which a table is written."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"
    json = "json"


def table(
    results: ResultsOption = Path("results"),
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="Default: terminal if standard output is one, else markdown."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write every table into this folder, as Markdown, CSV, LaTeX and JSON."
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Show ladders as they stood with N times their base budget: 1, 2, 4 ...",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print stored results as tables, one for everything that may be compared.

    Models in the controlled and in the native form never stand in one table.
    """
    from rich.console import Console

    from linbench.report.data import ReportData
    from linbench.report.table import save_tables
    from linbench.report.tables import all_tables, tables_at_budget
    from linbench.results.reference import store_at

    store = store_at(results)
    data = ReportData.from_kinds(store.by_kind())
    if budget is None:
        tables = all_tables(data, printed=save is None)
    else:
        tables = tables_at_budget(data, budget, printed=save is None)
    warn_ignored_files(store.set_aside)
    if not tables:
        tell(f"linbench: the results in {results} have nothing that a table shows.")
    if save:
        files = save_tables(tables, save)
        for path in files:
            tell(f"wrote {path}")
        if as_json:
            print(json.dumps([{"file": str(path)} for path in files]))
        return
    if as_json:
        format_ = Format.json
    elif format_ is None:
        format_ = Format.terminal if sys.stdout.isatty() else Format.markdown
    if format_ is Format.json:
        print(json.dumps([each_table.to_json() for each_table in tables]))
    elif format_ is Format.terminal:
        for each_table in tables:
            Console().print(each_table.to_terminal())
    elif format_ is Format.csv:
        # tables in other formats have their titles in them
        texts = [
            f"# {escape.one_line(_heading(each_table))}\n{each_table.to_csv()}"
            if len(tables) > 1
            else each_table.to_csv()
            for each_table in tables
        ]
        print("\n".join(texts))
    else:
        in_latex = format_ is Format.latex
        print(
            "\n".join(
                each_table.to_latex() if in_latex else each_table.to_markdown() for each_table in tables
            )
        )


def _heading(table: "Table") -> str:
    return f"{table.title}, {table.device}" if table.device else table.title
