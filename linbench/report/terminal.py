"""Rows of text as a table: on a terminal, and as Markdown."""

from collections.abc import Collection, Sequence

from linbench.report.table import of_texts


def show(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str] = ()) -> None:
    """Print rows to standard output as a table; the columns named in `left` are aligned to the left."""
    of_texts(columns, rows, left=left).show()


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str] = ()) -> str:
    """Return rows as a table of Markdown without a heading.

    All text is escaped but for that of type `escape.Markdown`.
    """
    return of_texts(columns, rows, left=left).body()
