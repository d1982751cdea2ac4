"""Rows of words as a table: drawn on a terminal, elsewhere one plain line per row, or as Markdown."""

import re
import sys
from collections.abc import Collection, Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text
from tabulate import tabulate

from linbench.common import escape


def show(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str] = ()) -> None:
    """Print to standard output; the columns named in `left` are aligned there, all others to the right."""
    rows = [[escape.one_line(word) for word in row] for row in rows]
    if sys.stdout.isatty():
        table = Table(box=box.SIMPLE_HEAD)
        for name in columns:
            table.add_column(name, justify="left" if name in left else "right", overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))  # plain: words may hold brackets
        console = Console()
        # in a narrow terminal lines go on in the next, and no word is taken apart
        Console(width=max(console.width, width(table, console))).print(table)
    else:
        print("\n".join(aligned(columns, rows, left=left)))


def width(table: Table, console: Console) -> int:
    """Of a table whose columns have all the room that they need, in characters."""
    return Measurement.get(console, console.options.update(max_width=1 << 16), table).maximum


def probability(p: float) -> str:
    """In words: none is nothing."""
    return f"{p:.3f}" if p >= 0.0005 else "<0.001"


def equal(p: float) -> str:
    """The same after the word: = 0.012, < 0.001."""
    told = probability(p)
    return f"< {told[1:]}" if told.startswith("<") else f"= {told}"


def aligned(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str] = ()
) -> list[str]:
    """The names of the columns, then the rows, each a line."""
    every = [list(columns), *map(list, rows)]
    widths = [max(len(row[i]) for row in every) for i in range(len(columns))]
    return [
        "  ".join(
            cell.ljust(width) if name in left else cell.rjust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        ).rstrip()
        for row in every
    ]


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str] = ()) -> str:
    """Return a table of Markdown, without a heading; words are escaped but for those that are
    `escape.Markdown` already."""
    plain = [[_cell(word) for word in row] for row in rows]
    sides = ["left" if name in left else "right" for name in columns]
    return str(
        tabulate(
            plain, [_cell(name) for name in columns], tablefmt="pipe", disable_numparse=True, colalign=sides
        )
    )


def _cell(word: str) -> str:
    return (
        " ".join(re.sub(r"(?<!\\)\|", r"\\|", word).split())
        if isinstance(word, escape.Markdown)
        else escape.markdown(word)
    )
