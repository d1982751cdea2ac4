"""A table of results, and how it is written on a terminal, as Markdown, LaTeX, CSV and JSON."""

import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text
from tabulate import tabulate

from linbench.common import escape
from linbench.common.files import inside, storage_sentence, unused, write_whole

Records = list[dict[str, Any]]
"""Rows as a program reads them: values by name, the same names in every row, None for a missing value."""

ABSENT = "–"
"""The text of a cell without a value."""

LATEX_PACKAGES = "% \\usepackage[T1]{fontenc}, \\usepackage{booktabs} and \\usepackage{graphicx}"

AROUND_CELL = 3
"""The characters around a cell on a terminal: a space on either side and what divides it from the next."""

SUFFIXES = (".md", ".csv", ".tex", ".json")


class Cell(NamedTuple):
    """A cell of a table: its text for readers, and the number behind it, if it has one."""

    text: str
    number: float | None = None


NO_VALUE = Cell(ABSENT)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: its heading.
        numeric: whether its cells are numbers, which are aligned to the right; text is aligned to the left.
        align: the alignment where it does not follow from `numeric`.
        optional: 0 for a column that is always shown. On a terminal too narrow for the table the columns with
            1, 2, 3 ... are left out, in this order, until the rest fits.
        hide_empty: whether a terminal and the report leave the column out if all its cells are empty.
        omit_from: formats that have no room for the column: "terminal" or "latex".
    """

    name: str
    numeric: bool = True
    align: Literal["left", "right"] | None = None
    optional: int = 0
    hide_empty: bool = False
    omit_from: frozenset[str] = frozenset()

    @property
    def left(self) -> bool:
        """True if the column is aligned to the left."""
        return self.align == "left" if self.align else not self.numeric


@dataclass(frozen=True)
class Table:
    """A table with its title, its caption and a name for its files.

    Args:
        title: stands above the table.
        columns: one for each cell of a row.
        rows: the cells, row by row.
        caption: stands below the table. Text of type `escape.Markdown` is taken as Markdown.
        slug: the name of its files, without a suffix.
        records: rows for CSV and JSON, where these are not the rows of the table; for example one for each
            layer and length, where the table has a column for each length.
        device: what the rows were measured on, where the title does not say it.
        latex_caption: the caption in LaTeX, where it is not the title with the caption.
        appendix: further tables by their headings, written below this one and into its files.
        json_values: the JSON of the table, where it has more than title, caption and rows.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    slug: str = ""
    records: Records | None = None
    device: str = ""
    latex_caption: str = ""
    appendix: Mapping[str, "Table"] = field(default_factory=dict)
    json_values: Mapping[str, Any] | None = None

    @property
    def names(self) -> list[str]:
        """The headings of the columns."""
        return [column.name for column in self.columns]

    @property
    def texts(self) -> list[list[str]]:
        """The texts of all cells, row by row."""
        return [[cell.text for cell in row] for row in self.rows]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The texts of all cells as a data frame of pandas."""
        return pd.DataFrame(self.texts, columns=self.names)

    def is_empty(self, column: Column) -> bool:
        """Return whether no cell of a column has text."""
        place = self.columns.index(column)
        return not any(row[place].text for row in self.rows)

    def select(self, columns: Collection[Column]) -> "Table":
        """Return the table with these columns alone, in the order that they have in it."""
        places = [place for place, column in enumerate(self.columns) if column in columns]
        return Table(
            self.title,
            tuple(self.columns[place] for place in places),
            tuple(tuple(row[place] for place in places) for row in self.rows),
            self.caption,
            self.slug,
        )

    def without_empty(self) -> "Table":
        """Return the table without empty columns that may be hidden."""
        hidden = [column for column in self.columns if column.hide_empty and self.is_empty(column)]
        return self.select([column for column in self.columns if column not in hidden])

    def to_records(self) -> Records:
        """Return the rows for a program: `records`, or else the numbers, and the texts of columns of text."""
        if self.records is not None:
            return self.records
        return [
            {
                column.name: cell.number if column.numeric else cell.text
                for column, cell in zip(self.columns, row, strict=True)
            }
            for row in self.rows
        ]

    def to_terminal(self) -> "TerminalTable":
        """Return the table for a console of rich, which leaves optional columns out where it is narrow."""
        return TerminalTable(self)

    def show(self) -> None:
        """Print the rows to standard output: ruled on a terminal, else one line of text for each row."""
        if sys.stdout.isatty():
            drawn = _draw(self, fold=True)
            console = Console()
            # in a narrow terminal lines go on in the next, and no word is taken apart
            Console(width=max(console.width, _width(drawn, console))).print(drawn)
        else:
            print("\n".join(self.to_lines()))

    def to_lines(self) -> list[str]:
        """Return the headings and the rows as aligned lines of text."""
        texts = [[escape.one_line(text) for text in row] for row in [self.names, *self.texts]]
        widths = [max(len(row[place]) for row in texts) for place in range(len(self.columns))]
        lines = []
        for row in texts:
            cells = [
                text.ljust(width) if column.left else text.rjust(width)
                for column, text, width in zip(self.columns, row, widths, strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
        return lines

    def to_markdown(self) -> str:
        """Return a heading, the table, its caption and the tables of its appendix as Markdown."""
        more = "".join(f"\n{heading}:\n\n{table.body()}\n" for heading, table in self.appendix.items())
        heading, caption = escape.markdown(self.title), escape.paragraph(self.caption)
        return f"### {heading}\n\n{self.body()}\n\n{caption}\n{more}"

    def body(self) -> str:
        """Return the rows as Markdown, without heading and caption.

        All text is escaped but for that of type `escape.Markdown`.
        """
        return str(
            tabulate(
                [[_markdown_cell(text) for text in row] for row in self.texts],
                [_markdown_cell(name) for name in self.names],
                tablefmt="pipe",
                disable_numparse=True,
                colalign=["left" if column.left else "right" for column in self.columns],
            )
        )

    def to_latex(self) -> str:
        """Return this table and those of its appendix as floating tables of LaTeX.

        The first line names the packages that the document needs.
        """
        return "\n".join(
            [LATEX_PACKAGES, *(_floating_table(table) for table in [self, *self.appendix.values()])]
        )

    def to_csv(self) -> str:
        """Return the records as CSV: whole numbers as such, others to six digits, nothing for None."""
        plain = [
            {name: escape.csv(value) if isinstance(value, str) else value for name, value in row.items()}
            for row in self.to_records()
        ]
        return pd.DataFrame(plain).convert_dtypes().to_csv(index=False, float_format="%.6g")

    def to_json(self) -> dict[str, Any]:
        """Return title, caption and records as JSON values, or `json_values` where the table has these."""
        if self.json_values is not None:
            return dict(self.json_values)
        return {"title": self.title, "caption": self.caption, "rows": self.to_records()}

    def save(self, folder: Path, name: str = "") -> list[Path]:
        """Write the table as Markdown, CSV, LaTeX and JSON, and its appendix as further CSV files.

        Args:
            folder: an existing folder.
            name: of the files, without a suffix; default: `slug`.

        Returns:
            the paths of the files, each of which is written whole or not at all.

        Raises:
            OSError: a file cannot be written.
        """
        name = name or self.slug
        json_text = escape.in_json(json.dumps(self.to_json(), indent=1, ensure_ascii=False)) + "\n"
        texts = dict(
            zip(SUFFIXES, (self.to_markdown(), self.to_csv(), self.to_latex(), json_text), strict=True)
        )
        for table in self.appendix.values():
            texts[f"{table.slug.removeprefix(self.slug)}.csv"] = table.to_csv()
        paths = [inside(folder, f"{name}{suffix}") for suffix in texts]
        for path, text in zip(paths, texts.values(), strict=True):
            write_whole(path, text.encode())
        return paths


def of_texts(columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: Collection[str] = ()) -> Table:
    """Return a table of texts without title and caption; the columns named in `left` are aligned there."""
    return Table(
        "",
        tuple(Column(name, numeric=name not in left) for name in columns),
        tuple(tuple(map(Cell, row)) for row in rows),
    )


def save_tables(tables: Iterable[Table], folder: Path) -> list[Path]:
    """Write all tables into a folder, which is made if it is not there, and return the paths of the files.

    Raises:
        StorageError: a file cannot be written.
    """
    written, names = list[Path](), list[str]()
    with storage_sentence(folder, "cannot write tables to", "--save"):
        folder.mkdir(parents=True, exist_ok=True)
        for table in tables:
            names.append(unused(table.slug, names))
            written += table.save(folder, names[-1])
    return written


@dataclass(frozen=True)
class TerminalTable:
    """A table with title, caption and appendix for a console of rich."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RichTable]:
        for table in (self.table, *self.table.appendix.values()):
            yield _fitted(table, console, options.max_width)


def _fitted(table: Table, console: Console, width: int) -> RichTable:
    """Return a table without as many optional columns as there is no room for."""
    shown = [column for column in table.without_empty().columns if "terminal" not in column.omit_from]
    optional = sorted((column for column in shown if column.optional), key=lambda column: column.optional)
    needed = _width(_draw(table.select(shown)), console)
    while needed > width and optional:
        needed -= _column_width(table, optional[0])
        shown.remove(optional.pop(0))
    return _draw(table.select(shown), titled=True, fold=needed > width)


def _column_width(table: Table, column: Column) -> int:
    """Return the characters that a table takes less without a column: its text and what is around it."""
    place = table.columns.index(column)
    texts = [column.name, *(row[place].text for row in table.rows)]
    return max(cell_len(escape.one_line(text)) for text in texts) + AROUND_CELL


def _draw(table: Table, *, titled: bool = False, fold: bool = False) -> RichTable:
    """Return a table of rich, in plain text, as names may hold what rich would take for markup."""
    drawn = RichTable(
        title=Text(escape.one_line(table.title)) if titled else None,
        caption=Text(escape.one_line(table.caption)) if titled and table.caption else None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    for column in table.columns:
        drawn.add_column(
            Text(escape.one_line(column.name)),
            justify="left" if column.left else "right",
            no_wrap=not fold and not column.hide_empty,
            overflow="fold",
        )
    for row in table.texts:
        drawn.add_row(*(Text(escape.one_line(text)) for text in row))
    return drawn


def _width(drawn: RichTable, console: Console) -> int:
    """Return the characters that a table takes if all columns have the room that they need."""
    return Measurement.get(console, console.options.update(max_width=1 << 16), drawn).maximum


def _markdown_cell(text: str) -> str:
    if isinstance(text, escape.Markdown):
        return " ".join(re.sub(r"(?<!\\)\|", r"\\|", text).split())
    return escape.markdown(text)


def _floating_table(table: Table) -> str:
    """Return a table of LaTeX that is no wider than the text."""
    shown = table.select([column for column in table.columns if "latex" not in column.omit_from])
    caption = table.latex_caption or f"{table.title}. {table.caption}"
    align = "".join("l" if column.left else "r" for column in shown.columns)
    # escaped here: pandas would take braces in names, given as `header`, for fields to fill in
    cells = [[escape.latex(text) for text in row] for row in shown.texts]
    names = [escape.latex(name) for name in shown.names]
    body = pd.DataFrame(cells, columns=names).to_latex(index=False, escape=False, column_format=align).strip()
    return (
        f"\\begin{{table}}\n\\centering\n\\caption{{{escape.latex(caption)}}}\n\\label{{tab:{table.slug}}}\n"
        f"\\resizebox{{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}}{{!}}{{%\n{body}}}\n\\end{{table}}\n"
    )
