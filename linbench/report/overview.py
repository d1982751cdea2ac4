"""Accuracy by task and model: what stands in several comparisons, in one table."""

from collections.abc import Sequence

import pandas as pd

from linbench.report.tables import accuracy_words
from linbench.results import Comparison, Row

IN_DOUBT = "†"
"""After an accuracy that takes part in no verdict."""

OVERVIEW = f"Accuracy, mean ± standard deviation over seeds. {IN_DOUBT}: undertrained, or its learning rate in doubt. –: not there, or not measured."


def overviews(comparisons: Sequence[Comparison]) -> dict[str, pd.DataFrame]:
    """Accuracy by task and model, by form and device where there are several comparisons of them: one row per model, one column per comparison and, where
    it has several, width."""
    alike: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        alike.setdefault(f"{comparison.form} form, {comparison.device}", []).append(comparison)
    return {name: _overview(found) for name, found in alike.items() if len(found) > 1}


def _overview(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    columns: dict[str, dict[str, list[Row]]] = {}
    for comparison in comparisons:
        several = len({row.width for row in comparison.rows}) > 1
        for row in comparison.rows:
            title = f"{comparison.title}, d_model {row.width}" if several else comparison.title
            columns.setdefault(title, {}).setdefault(row.results[0]["label"], []).append(row)
    labels = dict.fromkeys(label for rows in columns.values() for label in rows)
    return pd.DataFrame([{"model": label, **{title: _each(rows.get(label, [])) for title, rows in columns.items()}} for label in labels])


def _each(rows: Sequence[Row]) -> str:
    """Of one model; of several settings each."""
    return " / ".join(accuracy_words(row.mean, row.spread) + ("" if row.mean is None or row.in_verdicts else f" {IN_DOUBT}") for row in rows) or "–"
