"""Tables of variants side by side: each compared with the first on every task."""

from collections.abc import Sequence
from typing import Any

from linbench.common import escape
from linbench.experiments.former_searches import describe_former_marks
from linbench.experiments.sizing import TOLERANCE
from linbench.report.style.wording import FORMS, TITLES, accuracy_words, probability, thousands
from linbench.report.table import ABSENT, NO_VALUE, Cell, Column, Table
from linbench.results.comparison import law_warning
from linbench.results.layer_speeds import QUESTIONS, layer_key
from linbench.results.schema.cells import CellResult
from linbench.results.side_by_side import ALPHA, ComparisonRow, VariantComparison


def table(found: VariantComparison) -> Table:
    """Return a table with a row for every variant on every task; speeds are columns where any is known."""
    questions = [
        question for question in QUESTIONS if any(question in ways for ways in found.layer_speeds.values())
    ]
    speeds = [Column(f"{TITLES[question].lower()}, thousand tokens/s") for question in questions]
    return Table(
        f"Beside {found.first}, {found.form}",
        (
            Column("task", numeric=False),
            Column("model", numeric=False),
            Column("accuracy"),
            Column("seeds"),
            Column("difference"),
            Column("p"),
            Column("verdict", numeric=False),
            Column("state floats"),
            Column("parameters"),
            *speeds,
            Column("marks", numeric=False),
        ),
        tuple(_row(found, line, questions) for line in found.lines),
        escape.Markdown(caption(found)),
        json_values={
            "form": found.form,
            "first": found.first,
            "rows": [_record(found, line) for line in found.lines],
        },
    )


def _row(found: VariantComparison, line: ComparisonRow, questions: Sequence[str]) -> tuple[Cell, ...]:
    row, difference = line.row, line.difference
    interval = NO_VALUE
    if difference is not None:
        words = f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
        interval = Cell(words, difference.mean)
    state, parameters = (
        Cell("undeclared") if value is None else Cell(f"{value:,.0f}", value) for value in _sizes(line)
    )
    return (
        Cell(line.task),
        Cell(row.label),
        Cell(accuracy_words(row.mean, row.spread), row.mean),
        Cell(str(len(row.accuracies)), len(row.accuracies)),
        interval,
        NO_VALUE if line.p is None else Cell(probability(line.p), line.p),
        Cell(line.verdict),
        state,
        parameters,
        *(_speed(found, line, question) for question in questions),
        Cell(", ".join(row.marks)),
    )


def _speed(found: VariantComparison, line: ComparisonRow, question: str) -> Cell:
    """Return the speed of a layer, or the reason why it has none though it was measured."""
    way, layer = found.speeds_of(line, question), layer_key(line.row.results[0])
    if way is None or layer is None:
        return NO_VALUE
    rate = way.rates.get(layer)
    if rate is None:
        return Cell(way.missing_reason(layer) or ABSENT)
    return Cell(thousands(rate), rate.median)


def _sizes(line: ComparisonRow) -> tuple[float | None, float | None]:
    """Return state floats and parameters; None where they are not declared, or the model was never built."""
    size = line.row.size
    return size["state_total"], size["parameters"]


def caption(found: VariantComparison) -> str:
    """Return in Markdown what the columns mean, and what a verdict is."""
    results = [result for line in found.lines for result in line.row.results]
    seeds = ", ".join(map(str, sorted({result["cell"]["seed"] for result in results})))
    devices = ", ".join(
        escape.markdown(device) for device in sorted({result["cell"]["device"] for result in results})
    )
    about, first = FORMS.get(found.form, escape.markdown(f"{found.form} form.")), escape.markdown(found.first)
    words = (
        f"{about} Test accuracy, mean ± standard deviation over seeds ({seeds}; {devices}); diverged runs"
        f" count as chance. Difference: to {first}, with its own 95 % interval by Welch's t. Better and worse"
        f" are shown at {ALPHA:g} among all verdicts of this table: p is by Holm's correction. Sizes that"
        f" differ by more than {TOLERANCE:.0%} are not comparable, nor is a state that grows with the length"
        " beside one that does not; where a state is undeclared parameters alone are compared. Results that"
        " are undertrained, or whose learning rate was the first or last of all tried, take part in no"
        f" verdict.{_former(results)} State floats are those of one sequence at the longest tested"
        f" length.{_speeds(found)} {law_warning([line.row for line in found.lines])}"
    )
    return words.rstrip()


def _former(results: Sequence[CellResult]) -> str:
    """Return what marks mean that stand for results of former rules; nothing where no result has any."""
    marks = {mark for result in results for mark in result["marks"]}
    return "".join(f" {mark}: {says}." for mark, says in describe_former_marks(marks).items())


def _speeds(found: VariantComparison) -> str:
    """Return what the columns of speeds mean; nothing where there are none."""
    told: dict[str, list[str]] = {}
    for task, ways in found.layer_speeds.items():
        for way in ways.values():
            told.setdefault(way.full_description, []).append(task)
    every = len(found.layer_speeds)
    words = "; ".join(
        escape.markdown(way if len(tasks) == every else f"{', '.join(tasks)}: {way}")
        for way, tasks in told.items()
    )
    return words and (
        " Speeds are of one such layer alone, as `linbench bench` measured it, not of these runs, which may"
        f" have shared the machine: the median ± half of what lies between the fifths ({words}). Where others"
        " were at work meanwhile (busy) or a clock was held back (throttled), there is no number; `--again`"
        " measures anew."
    )


def _record(found: VariantComparison, line: ComparisonRow) -> dict[str, Any]:
    """Return a variant on a task as JSON values."""
    difference, (state, parameters) = line.difference, _sizes(line)
    return {
        "task": line.task,
        "model": line.row.label,
        "accuracies": line.row.accuracies,
        "mean": line.row.mean,
        "spread": line.row.spread,
        "difference": difference and difference.mean,
        "interval": difference and [difference.low, difference.high],
        "p_holm": line.p,
        "verdict": line.verdict,
        "state_floats": state,
        "parameters": parameters,
        "tokens_per_second": {question: _measured(found, line, question) for question in QUESTIONS},
        "marks": line.row.marks,
    }


def _measured(found: VariantComparison, line: ComparisonRow, question: str) -> dict[str, Any] | None:
    """Return the speed of a layer and how it was measured; None where it was not measured soundly."""
    way, layer = found.speeds_of(line, question), layer_key(line.row.results[0])
    if way is None or layer is None or layer not in way.rates:
        return None
    return {**way.rates[layer]._asdict(), "measured": way.full_description}
