"""`linbench table`: stored results as tables."""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from linbench.cli.options import JsonOption, ResultsOption, tell_set_aside
from linbench.common import escape
from linbench.common.streams import tell


class Format(StrEnum):
    """How a table is written."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"
    latex = "latex"
    json = "json"


def table(
    results: ResultsOption = Path("results"),
    format_: Annotated[
        Format | None, typer.Option("--format", help="Default: terminal where there is one, else markdown.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write every table into this folder, as Markdown, CSV, LaTeX and JSON."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tables of stored results: one for everything that may be compared; controlled and native forms never
    meet."""
    from rich.console import Console

    from linbench.report.export import csv, latex, plain, save_tables
    from linbench.report.style import wording as words
    from linbench.report.tables.benchmarks import bench_tables
    from linbench.report.tables.comparison import markdown, rich_tables
    from linbench.report.tables.layer_speeds import tables
    from linbench.results.comparison import comparisons
    from linbench.results.record import benched
    from linbench.results.reference import store_at
    from linbench.results.store import CELL, SPEED

    store = store_at(results)
    kept = store.by_kind()
    found, speeds = comparisons(kept[CELL]), [*tables(kept[SPEED]), *bench_tables(benched(kept))]
    tell_set_aside(store.set_aside)
    if not found and not speeds:
        tell(f"linbench: the results in {results} have nothing that a table shows.")
    if save:
        written = [*save_tables(found, save), *words.save_words(speeds, save)]
        for path in written:
            tell(f"wrote {path}")
        if as_json:
            print(json.dumps([{"file": str(path)} for path in written]))
        return
    chosen = (
        Format.json if as_json else format_ or (Format.terminal if sys.stdout.isatty() else Format.markdown)
    )
    if chosen is Format.json:
        print(json.dumps([*map(plain, found), *map(words.plain, speeds)]))
    elif chosen is Format.terminal:
        for drawn in [
            *(one for comparison in found for one in rich_tables(comparison)),
            *map(words.rich_table, speeds),
        ]:
            Console().print(drawn)
    else:
        of_cells = {Format.markdown: markdown, Format.csv: csv, Format.latex: latex}[chosen]
        of_speeds = {Format.markdown: words.markdown, Format.csv: words.csv, Format.latex: words.latex}[
            chosen
        ]
        texts = [(f"{one.title}, {one.form}, {one.device}", of_cells(one)) for one in found] + [
            (one.title, of_speeds(one)) for one in speeds
        ]
        titled = chosen is Format.csv and len(texts) > 1  # the others say themselves what they are of
        print("\n".join(f"# {escape.one_line(title)}\n{text}" if titled else text for title, text in texts))
