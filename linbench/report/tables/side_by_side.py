"""Tables of variants side by side: each compared with the first on every task."""

from collections.abc import Sequence
from math import inf
from typing import Any

from linbench.common import escape
from linbench.common.text import pluralize
from linbench.experiments.former_searches import describe_former_marks
from linbench.experiments.sizing import TOLERANCE
from linbench.report.style.wording import (
    FORMS,
    TITLES,
    accuracy_words,
    floors_of,
    million_tokens,
    probability,
    thousands,
)
from linbench.report.table import ABSENT, NO_VALUE, Cell, Column, Table
from linbench.results.comparison import law_warning
from linbench.results.contrast import ALPHA, MARGIN, POWER, AccuracyContrast, Judgement
from linbench.results.layer_speeds import QUESTIONS, layer_key
from linbench.results.permutation import MOST_EXACT, seeds_to_differ
from linbench.results.power import MOST_SEEDS
from linbench.results.schema.cells import CellResult
from linbench.results.scores import tokens_trained
from linbench.results.side_by_side import ComparisonRow, VariantComparison
from linbench.results.survival import Median, median

LEARNING_VERDICT = "verdict on learning"
LEARNING = ("learned", "median tokens to learn", "p of learning", LEARNING_VERDICT)
"""Columns on tokens to learn, where variants were trained until they learned."""


def table(found: VariantComparison) -> Table:
    """Return a table with a row for every variant on every task; speeds are columns where any is known."""
    questions = [
        question for question in QUESTIONS if any(question in ways for ways in found.layer_speeds.values())
    ]
    learning = (
        [Column(name, numeric=name != LEARNING_VERDICT) for name in LEARNING] if found.converged else []
    )
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
            Column("read with", numeric=False, hide_empty=True),
            *learning,
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
        _p(line.verdict),
        Cell(_words(line)),
        Cell("; ".join(line.remarks)),
        *(_learning(line) if found.converged else ()),
        state,
        parameters,
        *(_speed(found, line, question) for question in questions),
        Cell(", ".join(row.marks)),
    )


def _p(judged: Judgement | None) -> Cell:
    return NO_VALUE if judged is None else Cell(probability(judged.p), judged.p)


def _words(line: ComparisonRow) -> str:
    """Return the verdict on accuracy in words, or why there is none."""
    if line.obstacle:
        return f"no verdict: {line.obstacle}"
    if line.verdict is None:
        return "compared with"
    return _outcome(line.verdict, line.accuracy)


def _outcome(judged: Judgement, scores: AccuracyContrast | None = None) -> str:
    """Return an outcome in words, with the further seeds that would decide."""
    if judged.further == 0:
        small = scores is not None and scores.within_margin
        return f"{judged.outcome} (less than a point)" if small else judged.outcome.value
    more = f"over {MOST_SEEDS:,}" if judged.further is None else f"{judged.further:,}"
    return f"{judged.outcome}; {more} more seeds"


def _learning(line: ComparisonRow) -> tuple[Cell, ...]:
    """Return the cells on tokens to learn, in the order of `LEARNING`."""
    times, judged = line.times, line.learning_verdict
    if not times:
        return (NO_VALUE,) * len(LEARNING)
    learned, middle = sum(time.happened for time in times), median(times)
    return (
        Cell(f"{learned} of {len(times)}", learned),
        Cell(_median(line, middle), None if middle.time == inf else middle.time),
        _p(judged),
        Cell("" if judged is None else _outcome(judged)),
    )


def _median(line: ComparisonRow, middle: Median) -> str:
    """Return the median of tokens to learn; beyond the budget if fewer than half of the seeds learned."""
    if middle.time < inf:
        return million_tokens(middle.time)
    return f"> {million_tokens(max(map(tokens_trained, line.row.results)))}"


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
        f"{about} {_budget(found)} Test accuracy, mean ± standard deviation over seeds ({seeds}; {devices});"
        f" diverged runs count as chance. Difference: to {first}, with its own 95 % interval by Welch's t."
        f" {_verdicts(found)}{_former(results)} State floats are those of one sequence at the longest tested"
        f" length.{_floors(found)}{_speeds(found)} {law_warning([line.row for line in found.lines])}"
    )
    return words.rstrip()


def _floors(found: VariantComparison) -> str:
    """Return in Markdown what shallow baselines score on tasks where they score well."""
    tasks = {line.task: line.row.results[0]["cell"]["task"] for line in found.lines if line.row.results}
    return escape.markdown(floors_of(tasks))


def _budget(found: VariantComparison) -> str:
    """Return what the variants were trained with."""
    if found.converged:
        return "Each seed was trained until it had learned, as protocol converged has it."
    budgets = sorted({tokens_trained(result) for line in found.lines for result in line.row.results} - {0})
    if not budgets:
        return ""
    ends = dict.fromkeys(map(million_tokens, (budgets[0], budgets[-1])))
    return f"Trained with {' to '.join(ends)} tokens, whether that is enough or not."


def _verdicts(found: VariantComparison) -> str:
    """Return what verdicts say, and how often they may be wrong."""
    if not found.tests:
        return ""
    learning = (
        " Learned: seeds whose validation accuracy came nine tenths of the way from chance to the optimum;"
        " tokens to learn are compared by the log-rank test, likewise exact."
        if found.converged
        else ""
    )
    return (
        f"Better and worse are shown at {ALPHA:g} over all verdicts of this command together"
        f" ({found.tests:,}): p is of the permutation test (exact up to {MOST_EXACT} seeds of two variants"
        f" together), by Holm's method. It takes {seeds_to_differ(found.tests, alpha=ALPHA)} seeds of each"
        f" for any difference to be shown.{learning} More seeds: so many further ones of each would show it"
        f" in {POWER:.0%} of cases, if they are like these, or that it is less than {_points(MARGIN)}. Read"
        f" verdicts with what stands beside them: marks, and sizes that differ by more than {TOLERANCE:.0%}"
        " or of which one grows with the length."
        f"{_undeclared(found)}"
    )


def _undeclared(found: VariantComparison) -> str:
    """Return how variants are compared that declare no state; nothing where there are none."""
    if all(line.row.size["state_total"] is not None for line in found.lines):
        return ""
    return (
        " A layer that declares no state is compared at equal parameters: the width of its channel mixer is"
        f" chosen so that numbers of parameters agree within {TOLERANCE:.0%}, where any width does that."
    )


def _points(share: float) -> str:
    return pluralize(round(100 * share), "point")


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
    judged, learned = line.verdict, line.learning_verdict
    return {
        "task": line.task,
        "model": line.row.label,
        "accuracies": line.row.accuracies,
        "mean": line.row.mean,
        "spread": line.row.spread,
        "difference": difference and difference.mean,
        "interval": difference and [difference.low, difference.high],
        "p_holm": judged and judged.p,
        "verdict": judged and judged.outcome,
        "further_seeds": judged and judged.further,
        "no_verdict": line.obstacle,
        "read_with": list(line.remarks),
        "learning": _learning_record(line, learned) if found.converged else None,
        "state_floats": state,
        "parameters": parameters,
        "tokens_per_second": {question: _measured(found, line, question) for question in QUESTIONS},
        "marks": line.row.marks,
    }


def _learning_record(line: ComparisonRow, judged: Judgement | None) -> dict[str, Any] | None:
    """Return the tokens to learn of a variant as JSON values."""
    if not line.times:
        return None
    middle = median(line.times)
    return {
        "seeds": len(line.times),
        "learned": sum(time.happened for time in line.times),
        "median_tokens": None if middle.time == inf else middle.time,
        "p_holm": judged and judged.p,
        "verdict": judged and judged.outcome,
        "further_seeds": judged and judged.further,
    }


def _measured(found: VariantComparison, line: ComparisonRow, question: str) -> dict[str, Any] | None:
    """Return the speed of a layer and how it was measured; None where it was not measured soundly."""
    way, layer = found.speeds_of(line, question), layer_key(line.row.results[0])
    if way is None or layer is None or layer not in way.rates:
        return None
    return {**way.rates[layer]._asdict(), "measured": way.full_description}
