"""Comparisons as numbers, for CSV and JSON: what readers find in one cell, as a mean with its spread, stands
in columns of its own."""

from collections.abc import Sequence
from math import inf
from statistics import fmean, median, stdev
from typing import Any

import pandas as pd

from linbench.common import escape
from linbench.results.comparison import Comparison, Row
from linbench.results.record import rate_of
from linbench.results.scores import LEARNED, above_chance, accuracies_by_test, steps_to

Numbers = list[dict[str, Any]]
"""Rows of a table by the names of its columns, the same in all; None where there is none."""


def models(comparison: Comparison) -> Numbers:
    """A row for each: accuracy with its standard deviation over seeds, size, cost and marks."""
    return [_model(row) for row in comparison.rows]


def _model(row: Row) -> dict[str, Any]:
    return {
        "model": row.label,
        "accuracy": row.mean,
        "accuracy_sd": row.spread,
        "scaled": None if row.mean is None else above_chance(row.mean, row.results[0]["chance"]),
        "learning_rate": rate_of(row.results[0]),
        "seeds": len(row.accuracies),
        **row.size,
        f"steps_to_{LEARNED:g}": _steps(row),
        "seconds": median(result["seconds"] for result in row.results),
        "marks": ", ".join(row.marks),
    }


def _steps(row: Row) -> float | None:
    """The median over seeds of the first step at which validation accuracy was as high; None where most never
    came so far."""
    reached = sorted(steps_to(result, LEARNED) for result in row.results)
    middle = reached[(len(reached) - 1) // 2]
    return None if middle == inf else middle


def tests(comparison: Comparison) -> Numbers:
    """A row for each model and each of several tests, none where there is a single one."""
    rows: Numbers = []
    for row in comparison.rows if comparison.tests else ():
        seeds = [found for result in row.results if (found := accuracies_by_test(result)) is not None]
        for i, test in enumerate(comparison.tests):
            values = [of_tests[i] for of_tests in seeds]
            rows.append(
                {
                    "model": row.label,
                    "test": test,
                    "accuracy": _mean(values),
                    "accuracy_sd": _deviation(values),
                }
            )
    return rows


def metrics(comparison: Comparison) -> Numbers:
    """A row for each model and each metric that the task has beside accuracy and nll."""
    of_rows = [row.metrics for row in comparison.rows]
    names = dict.fromkeys(name for found in of_rows for name in found)
    return [
        {
            "model": row.label,
            "metric": name,
            "mean": _mean(found.get(name, ())),
            "sd": _deviation(found.get(name, ())),
        }
        for row, found in zip(comparison.rows, of_rows, strict=True)
        for name in names
    ]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _deviation(values: Sequence[float]) -> float | None:
    """None of fewer than two."""
    return stdev(values) if len(values) > 1 else None


def csv(numbers: Numbers) -> str:
    """Whole numbers as such, others to six digits, nothing for what there is not."""
    plain = [
        {name: escape.csv(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in numbers
    ]
    return pd.DataFrame(plain).convert_dtypes().to_csv(index=False, float_format="%.6g")
