"""Accuracy by task and model: what stands in several comparisons, in one table."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from linbench.report.tables.comparison import accuracy_words
from linbench.report.tables.numbers import Numbers
from linbench.results.comparison import Comparison, Row

IN_DOUBT = "†"
"""After an accuracy that takes part in no verdict."""

OVERVIEW = (
    f"Accuracy, mean ± standard deviation over seeds. {IN_DOUBT}: undertrained, or its learning rate in"
    " doubt. –: not there, or not measured."
)


class Overview(NamedTuple):
    """Of one form and device: for readers one row per model, one column per comparison and, where it has
    several, width; and as numbers, a row for each."""

    frame: pd.DataFrame
    numbers: Numbers


def overviews(comparisons: Sequence[Comparison]) -> dict[str, Overview]:
    """Accuracy by task and model, by form and device where there are several comparisons of them."""
    alike: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        alike.setdefault(f"{comparison.form} form, {comparison.device}", []).append(comparison)
    return {name: Overview(_frame(found), _numbers(found)) for name, found in alike.items() if len(found) > 1}


def _frame(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    columns: dict[str, dict[str, list[Row]]] = {}
    for comparison in comparisons:
        several = len({row.width for row in comparison.rows}) > 1
        for row in comparison.rows:
            title = f"{comparison.title}, d_model {row.width}" if several else comparison.title
            columns.setdefault(title, {}).setdefault(row.results[0]["label"], []).append(row)
    labels = dict.fromkeys(label for rows in columns.values() for label in rows)
    return pd.DataFrame(
        [
            {"model": label, **{title: _each(rows.get(label, [])) for title, rows in columns.items()}}
            for label in labels
        ]
    )


def _numbers(comparisons: Sequence[Comparison]) -> Numbers:
    return [
        {
            "model": row.label,
            "task": comparison.title,
            "d_model": row.width or None,
            "accuracy": row.mean,
            "accuracy_sd": row.spread,
            "in_doubt": not row.in_verdicts,
        }
        for comparison in comparisons
        for row in comparison.rows
    ]


def _each(rows: Sequence[Row]) -> str:
    """Of one model; of several settings each."""
    return (
        " / ".join(
            accuracy_words(row.mean, row.spread)
            + ("" if row.mean is None or row.in_verdicts else f" {IN_DOUBT}")
            for row in rows
        )
        or "–"
    )
