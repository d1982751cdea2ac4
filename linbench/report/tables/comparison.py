"""Tables of models that may stand side by side: accuracy, size and cost, a row for each model."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from statistics import fmean, median, stdev
from typing import Any

from linbench.report.style.wording import accuracy_words, training
from linbench.report.table import ABSENT, Cell, Column, Records, Table
from linbench.report.tables import comparison_kind
from linbench.results.comparison import Comparison, Row
from linbench.results.record import STATE, learning_rate_of, seed_of
from linbench.results.scores import LEARNED, above_chance, accuracies_by_test, accuracy, steps_to_reach

MODEL = Column("model", numeric=False)
SPARED_IN_LATEX = frozenset({"latex"})

MANY_METRICS = 8
"""The number of a metric up to which all are shown; beyond it powers of two alone, as pages are narrow."""


def table(comparison: Comparison) -> Table:
    """Return a table with a row for each model: accuracy over seeds, size, cost and marks.

    The learning rate is a column where it was searched for. Accuracies by test and other metrics are in the
    appendix, where there are any.
    """
    records = records_by_model(comparison)
    searched = any(result["search"] for result in comparison.results)
    marked = any(record["marks"] for record in records)
    columns = _columns(searched=searched, marked=marked)
    rows = [_row(record) for record in records]
    title, about = f"{comparison.title}, {comparison.form}", caption(comparison)
    tests, metrics = records_by_test(comparison), records_by_metric(comparison)
    appendix = {
        "By test": (tests, _by_test(tests), "tests"),
        "Other metrics": (metrics, _by_metric(metrics), "metrics"),
    }
    return Table(
        title,
        columns,
        tuple(tuple(row[column.name] for column in columns) for row in rows),
        about,
        comparison.slug,
        records=records,
        device=comparison.device,
        latex_caption=about,
        appendix={
            heading: _appended(title, heading, rows, f"{comparison.slug}-{name}", records)
            for heading, (records, rows, name) in appendix.items()
            if rows
        },
        json_values={
            "title": comparison.title,
            "form": comparison.form,
            "device": comparison.device,
            "caption": about,
            "results": comparison.fingerprint,
            "chance": comparison.results[0]["chance"],
            "rows": records,
            "accuracies": {
                row.label: {str(seed_of(result)): accuracy(result) for result in row.results}
                for row in comparison.rows
            },
            "tests": tests,
            "metrics": metrics,
        },
    )


def caption(comparison: Comparison) -> str:
    """Return the setting of a comparison, and what the columns of its table mean."""
    several = len(comparison.tests)
    tests = f" of {several} tests, each counting as much" if several else ""
    tested = "longest tested" if several else "tested"
    return (
        f"{training(comparison)} "
        f"Accuracy on the test split{tests}, mean ± standard deviation over seeds; "
        f"chance is {comparison.results[0]['chance']:.3f}, and scaled is (accuracy - chance) / (1 - chance). "
        f"State floats are those of one sequence at the {tested} length, all layers. "
        "Steps to 0.9 is the number of training steps until validation accuracy first reaches 0.9. "
        "Seconds is the median wall-clock time of a run, which is no measure of a layer's speed."
    )


def _columns(*, searched: bool, marked: bool) -> tuple[Column, ...]:
    """Return the columns of a comparison.

    Args:
        searched: whether learning rates were searched for.
        marked: whether any model has marks.
    """
    rate = [Column("learning rate")] if searched else []
    omitted = frozenset[str]() if marked else SPARED_IN_LATEX
    return (
        MODEL,
        Column("accuracy", align="left"),
        Column("scaled", optional=4),
        *rate,
        Column("seeds"),
        Column("parameters", optional=5),
        Column("state floats"),
        Column("of them", numeric=False, omit_from=frozenset({"terminal", "latex"})),
        Column("FLOPs/token", optional=3),
        Column("steps to 0.9", optional=2),
        Column("seconds", optional=1, omit_from=SPARED_IN_LATEX),
        Column("marks", numeric=False, hide_empty=True, omit_from=omitted),
    )


def _row(record: Mapping[str, Any]) -> dict[str, Cell]:
    """Return the cells of a model by column."""
    built = record["parameters"] is not None

    def count(name: str) -> Cell:
        value = record[name]
        if value is None:
            return Cell("undeclared" if built else ABSENT)
        return Cell(f"{value:,.0f}", value)

    steps, scaled = record["steps_to_0.9"], record["scaled"]
    total = count("state_total")
    parts = [f"{part} {record[f'state_{part}']:,}" for part in STATE if record[f"state_{part}"]]
    return {
        "model": Cell(record["model"]),
        "accuracy": Cell(accuracy_words(record["accuracy"], record["accuracy_sd"]), record["accuracy"]),
        "scaled": Cell(_three(scaled), scaled),
        "learning rate": Cell(f"{record['learning_rate']:g}", record["learning_rate"]),
        "seeds": Cell(str(record["seeds"]), record["seeds"]),
        "parameters": count("parameters"),
        "state floats": total,
        "of them": total if total.number is None else Cell(", ".join(parts)),
        "FLOPs/token": count("flops_per_token"),
        "steps to 0.9": Cell(ABSENT) if steps is None else count("steps_to_0.9"),
        "seconds": Cell(f"{record['seconds']:.0f}", record["seconds"]),
        "marks": Cell(record["marks"]),
    }


Pivoted = dict[str, dict[str, Cell]]
"""Cells by model and column."""


def _by_test(records: Records) -> Pivoted:
    """Return accuracies by model and test."""
    return _pivot(
        (
            one["model"],
            one["test"],
            Cell(accuracy_words(one["accuracy"], one["accuracy_sd"]), one["accuracy"]),
        )
        for one in records
    )


def _by_metric(records: Records) -> Pivoted:
    """Return means by model and metric.

    Of numbered metrics, such as `weight_on_old_0`, the first ones and the powers of two are shown.
    """
    return _pivot(
        (one["model"], one["metric"], Cell(_three(one["mean"]), one["mean"]))
        for one in records
        if is_shown(one["metric"])
    )


def is_shown(metric: str) -> bool:
    """Return whether a metric has a column: of numbered ones the first have, and the powers of two."""
    number = metric.rpartition("_")[2]
    return not number.isdigit() or int(number) <= MANY_METRICS or int(number).bit_count() == 1


def _pivot(cells: Iterable[tuple[str, str, Cell]]) -> Pivoted:
    rows: Pivoted = {}
    for model, column, cell in cells:
        rows.setdefault(model, {})[column] = cell
    return rows


def _appended(title: str, heading: str, rows: Pivoted, slug: str, records: Records) -> Table:
    """Return a table of the appendix, a row for each model."""
    names = list(next(iter(rows.values())))
    return Table(
        f"{title}, {heading.lower()}",
        (MODEL, *map(Column, names)),
        tuple((Cell(model), *(cells[name] for name in names)) for model, cells in rows.items()),
        slug=slug,
        records=records,
        latex_caption=f"{title}: {heading.lower()}.",
    )


def _three(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3f}"


def records_by_model(comparison: Comparison) -> Records:
    """Return a row for each model: accuracy with its standard deviation over seeds, size, cost and marks."""
    return [_model_record(row) for row in comparison.rows]


def _model_record(row: Row) -> dict[str, Any]:
    return {
        "model": row.label,
        "accuracy": row.mean,
        "accuracy_sd": row.spread,
        "scaled": None if row.mean is None else above_chance(row.mean, row.results[0]["chance"]),
        "learning_rate": learning_rate_of(row.results[0]),
        "seeds": len(row.accuracies),
        **row.size,
        f"steps_to_{LEARNED:g}": _steps_to_learned(row),
        "seconds": median(result["seconds"] for result in row.results),
        "marks": ", ".join(row.marks),
    }


def _steps_to_learned(row: Row) -> float | None:
    """Return the median over seeds of the first step at which validation accuracy reached `LEARNED`.

    It is None where most seeds never reached it.
    """
    reached = sorted(steps_to_reach(result, LEARNED) for result in row.results)
    middle = reached[(len(reached) - 1) // 2]
    return None if middle == inf else middle


def records_by_test(comparison: Comparison) -> Records:
    """Return a row for each model and each of several tests; none where there is a single test."""
    records: Records = []
    for row in comparison.rows if comparison.tests else ():
        by_seed = [found for result in row.results if (found := accuracies_by_test(result)) is not None]
        for place, test in enumerate(comparison.tests):
            values = [by_test[place] for by_test in by_seed]
            records.append(
                {
                    "model": row.label,
                    "test": test,
                    "accuracy": _mean(values),
                    "accuracy_sd": _deviation(values),
                }
            )
    return records


def records_by_metric(comparison: Comparison) -> Records:
    """Return a row for each model and each metric that the task has beside accuracy and nll."""
    by_row = [row.metrics for row in comparison.rows]
    names = dict.fromkeys(name for found in by_row for name in found)
    records: Records = []
    for row, found in zip(comparison.rows, by_row, strict=True):
        for name in names:
            values = found.get(name, [])
            records.append(
                {"model": row.label, "metric": name, "mean": _mean(values), "sd": _deviation(values)}
            )
    return records


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _deviation(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


TABLES = comparison_kind("comparisons", table, order=10)
