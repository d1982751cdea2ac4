"""Tables of reliability: whether other seeds, budgets and sizes would order the same models alike."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from linbench.common.files import file_name
from linbench.report.data import ReportData
from linbench.report.table import NO_VALUE, Cell, Column, Table
from linbench.report.tables import TableKind, by_training
from linbench.results.budgets import budget_scores, has_budgets
from linbench.results.comparison import Comparison
from linbench.results.reliability import (
    CONFIDENCE,
    FEWEST_MODELS,
    RELIABLE_FROM,
    Agreement,
    Reliability,
    agreement,
    reliability,
    tau,
)
from linbench.results.scores import accuracies_by_test

CAPTION = (
    "Reliability is the intraclass correlation of single runs: the share of the variance of accuracy that"
    " lies between models, and not between seeds of one model. A task is named where it is below"
    f" {RELIABLE_FROM:g}. Of the mean: the same for means over all seeds. The other columns are Kendall's"
    " tau of two orders of the models by mean accuracy, 1 for the same order and 0 for unrelated ones. By"
    " budget: of the base budget and the last one. By length: of the shortest tested sequences and the"
    " longest. Same task and other tasks: the mean of tau with the other"
    f" cells here, and how many there are. Brackets: {CONFIDENCE:.0%} intervals, by F, and by a bootstrap"
    f" over models. Cells of {FEWEST_MODELS} models or more are here; runs without accuracy do not count."
)


class Line(NamedTuple):
    """A comparison as a measurement."""

    comparison: Comparison
    found: Reliability
    by_budget: Agreement | None
    by_length: Agreement | None
    same: list[float]
    others: list[float]


def reliability_tables(data: ReportData) -> list[Table]:
    """Return a table for each form and device of which some comparison has enough models and seeds.

    What was trained until learned stands in a table of its own, apart from what had one budget.
    """
    tables = ((name, lines(found)) for name, found in by_training(data.comparisons).items())
    return [_table(name, found) for name, found in tables if found]


TABLES = TableKind("reliability", reliability_tables, order=21, printed=False)


def lines(comparisons: Sequence[Comparison]) -> list[Line]:
    """Return the comparisons with enough models and seeds, each as a measurement."""
    found = [
        (each, one)
        for each in comparisons
        if (one := reliability([row.accuracies for row in each.rows])) is not None
    ]
    return [
        Line(own, one, _by_budget(own), _by_length(own), *_with_others(own, [each for each, _ in found]))
        for own, one in found
    ]


def _by_budget(comparison: Comparison) -> Agreement | None:
    """Return how far the base budget orders models as the last one does."""
    if not has_budgets(comparison.rows):
        return None
    scores = dict(zip((row.label for row in comparison.rows), budget_scores(comparison.rows), strict=True))
    first = {label: own[0].mean for label, own in scores.items() if own}
    return agreement(first, {label: own[-1].mean for label, own in scores.items() if own})


def _by_length(comparison: Comparison) -> Agreement | None:
    """Return how far the shortest tested sequences order models as the longest do; None for one length."""
    lengths = [test["seq_len"] for test in comparison.results[0].get("tests", [])]
    if len(set(lengths)) < 2:
        return None
    ends = (lengths.index(min(lengths)), lengths.index(max(lengths)))
    scores: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for row in comparison.rows:
        if found := [tests for result in row.results if (tests := accuracies_by_test(result))]:
            for own, place in zip(scores, ends, strict=True):
                own[row.label] = fmean(tests[place] for tests in found)
    return agreement(*scores)


def _with_others(own: Comparison, every: Sequence[Comparison]) -> tuple[list[float], list[float]]:
    """Return how far other cells order the models as a comparison does: those of its task, and all others."""
    same, others = list[float](), list[float]()
    for other in every:
        found = None if other is own else tau(_means(own), _means(other))
        if found is not None:
            (same if other.task == own.task else others).append(found)
    return same, others


def _means(comparison: Comparison) -> dict[str, float]:
    return {row.label: row.mean for row in comparison.rows if row.mean is not None}


def _table(name: str, found: Sequence[Line]) -> Table:
    return Table(
        f"Reliability: {name}",
        (
            Column("task", numeric=False),
            Column("models"),
            Column("seeds"),
            Column("reliability"),
            Column("of the mean"),
            Column("named", numeric=False, hide_empty=True),
            Column("by budget"),
            Column("by length"),
            Column("same task"),
            Column("other tasks"),
        ),
        tuple(map(_row, found)),
        CAPTION,
        file_name(f"reliability {name}"),
        records=[_record(line) for line in found],
    )


def _row(line: Line) -> tuple[Cell, ...]:
    one = line.found
    return (
        Cell(line.comparison.title),
        Cell(str(one.models), one.models),
        Cell(f"{one.seeds:.3g}", one.seeds),
        _with_interval(one.one, one.low, one.high),
        Cell(f"{one.of_mean:.2f}", one.of_mean),
        Cell("" if one.reliable else f"below {RELIABLE_FROM:g}"),
        *(NO_VALUE if one is None else _with_interval(*one[:3]) for one in (line.by_budget, line.by_length)),
        _mean_of(line.same),
        _mean_of(line.others),
    )


def _with_interval(value: float, low: float, high: float) -> Cell:
    return Cell(f"{value:.2f} [{low:.2f}, {high:.2f}]", value)


def _mean_of(found: Sequence[float]) -> Cell:
    if not found:
        return NO_VALUE
    mean = fmean(found)
    return Cell(f"{mean:.2f} ({len(found)})", mean)


def _record(line: Line) -> dict[str, Any]:
    return {
        "task": line.comparison.title,
        **{f"reliability_{name}": value for name, value in line.found._asdict().items()},
        **_tau("tau_by_budget", line.by_budget),
        **_tau("tau_by_length", line.by_length),
        "tau_same_task": fmean(line.same) if line.same else None,
        "tau_other_tasks": fmean(line.others) if line.others else None,
    }


def _tau(name: str, found: Agreement | None) -> dict[str, float | None]:
    ends = (None, None, None) if found is None else found[:3]
    return dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
