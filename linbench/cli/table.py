"""`linbench table`: stored results as tables."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.options import JsonOption, ResultsOption, tell_set_aside


class Format(StrEnum):
    """How a table is written."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"
    json = "json"


def table(
    results: ResultsOption = Path("results"),
    format_: Annotated[Format | None, typer.Option("--format", help="Default: terminal where there is one, else markdown.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="DIR", help="Write every table as Markdown, CSV, LaTeX and JSON into this folder.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Tables of stored results: one for everything that may be compared; controlled and native forms never meet."""
    from rich.console import Console

    from linbench.report.exports import csv, latex, plain, save_tables
    from linbench.report.tables import markdown, rich_tables
    from linbench.results import comparisons
    from linbench.store import Store

    store = Store(results)
    found = comparisons(store.all())
    tell_set_aside(store.set_aside)
    if save:
        for path in save_tables(found, save):
            print(f"wrote {path}", file=sys.stderr)
        return
    chosen = Format.json if as_json else format_ or (Format.terminal if sys.stdout.isatty() else Format.markdown)
    if chosen is Format.json:
        print(json.dumps([plain(comparison) for comparison in found]))
    elif chosen is Format.terminal:
        for comparison in found:
            Console().print(*rich_tables(comparison))
    else:
        print("\n".join({Format.markdown: markdown, Format.csv: csv, Format.latex: latex}[chosen](comparison) for comparison in found))
