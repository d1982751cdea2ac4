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


def table(
    results: ResultsOption = Path("results"),
    format_: Annotated[Format | None, typer.Option("--format", help="Default: terminal where there is one, else markdown.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="DIR", help="Write every table as Markdown and CSV into this folder.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Tables of stored results: one for everything that may be compared; controlled and native forms never meet."""
    from rich.console import Console

    from linbench.report.tables import by_test, markdown, rich_tables, save_tables
    from linbench.report.tables import table as as_frame
    from linbench.results import comparisons
    from linbench.store import Store

    store = Store(results)
    found = comparisons(store.all())
    tell_set_aside(store.set_aside)
    if save:
        for path in save_tables(found, save):
            print(f"wrote {path}", file=sys.stderr)
        return
    if as_json:
        rows = [(c, as_frame(c).to_dict("records"), by_test(c).to_dict("records")) for c in found]
        print(json.dumps([{"title": c.title, "form": c.form, "device": c.device, "rows": own, "tests": tests} for c, own, tests in rows]))
        return
    chosen = format_ or (Format.terminal if sys.stdout.isatty() else Format.markdown)
    for comparison in found:
        if chosen is Format.terminal:
            Console().print(*rich_tables(comparison))
        else:
            print(markdown(comparison) if chosen is Format.markdown else as_frame(comparison).to_csv(index=False))
