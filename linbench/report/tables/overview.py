"""Tables of accuracy by task and model: several comparisons in one table."""

from collections.abc import Sequence

from linbench.common.files import file_name
from linbench.report.data import ReportData
from linbench.report.style.wording import accuracy_words, floors_of
from linbench.report.table import ABSENT, Cell, Column, Records, Table
from linbench.report.tables import TableKind, by_training
from linbench.results.comparison import Comparison, Row

IN_DOUBT = "†"
"""The sign after an accuracy that takes part in no verdict."""

CAPTION = (
    f"Test accuracy, mean ± standard deviation over seeds. {IN_DOUBT}: the model was undertrained or its"
    " learning rate is in doubt. –: not measured."
)


def overview_tables(data: ReportData) -> list[Table]:
    """Return a table for each form and device of which there are several comparisons.

    What was trained until learned stands in a table of its own, apart from what had one budget.
    """
    return overviews(data.comparisons)


TABLES = TableKind("overview", overview_tables, order=20, printed=False)


def overviews(comparisons: Sequence[Comparison]) -> list[Table]:
    """Return accuracy by task and model for what is alike in form, way of training and device."""
    return [_overview(name, found) for name, found in by_training(comparisons).items() if len(found) > 1]


def _overview(name: str, comparisons: Sequence[Comparison]) -> Table:
    by_column = _rows_by_column(comparisons)
    labels = dict.fromkeys(label for rows in by_column.values() for label in rows)
    return Table(
        f"By task and model: {name}",
        (Column("model", numeric=False), *map(Column, by_column)),
        tuple(
            (Cell(label), *(_cell(rows.get(label, [])) for rows in by_column.values())) for label in labels
        ),
        CAPTION + floors_of({each.title: each.results[0]["cell"]["task"] for each in comparisons}),
        file_name(f"by task {name}"),
        records=_records(comparisons),
    )


def _rows_by_column(comparisons: Sequence[Comparison]) -> dict[str, dict[str, list[Row]]]:
    """Return rows by column and model: a column for each comparison and, where it has several, width."""
    columns: dict[str, dict[str, list[Row]]] = {}
    for comparison in comparisons:
        several = len({row.width for row in comparison.rows}) > 1
        for row in comparison.rows:
            title = f"{comparison.title}, d_model {row.width}" if several else comparison.title
            columns.setdefault(title, {}).setdefault(row.results[0]["label"], []).append(row)
    return columns


def _records(comparisons: Sequence[Comparison]) -> Records:
    return [
        {
            "model": row.label,
            "task": comparison.title,
            "d_model": row.width or None,
            "accuracy": row.mean,
            "accuracy_sd": row.spread,
            "in_doubt": not row.eligible,
        }
        for comparison in comparisons
        for row in comparison.rows
    ]


def _cell(rows: Sequence[Row]) -> Cell:
    """Return the accuracy of a model; where it has several settings, of each."""
    return Cell(" / ".join(map(accuracy, rows)) or ABSENT, rows[0].mean if len(rows) == 1 else None)


def accuracy(row: Row) -> str:
    """Return the accuracy of a model in words, with the sign of doubt where it takes part in no verdict."""
    doubt = "" if row.mean is None or row.eligible else f" {IN_DOUBT}"
    return accuracy_words(row.mean, row.spread) + doubt
