"""Variants side by side, in words."""

from collections.abc import Sequence
from typing import Any

from linbench.common import escape
from linbench.experiments.former_searches import formers
from linbench.experiments.sizing import TOLERANCE
from linbench.report.style.wording import TITLES, thousands
from linbench.report.tables.comparison import NOTES, accuracy_words
from linbench.report.terminal import markdown, probability
from linbench.results.comparison import laws_said
from linbench.results.layer_speeds import ASKED, layer_of
from linbench.results.record import Result
from linbench.results.side_by_side import ALPHA, Line, SideBySide

LEFT = {"task", "model", "verdict", "marks"}


def columns(found: SideBySide) -> list[str]:
    """Speeds stand there where any are known."""
    speeds = [f"{TITLES[question].lower()}, thousand tokens/s" for question in _known(found)]
    return [
        "task",
        "model",
        "accuracy",
        "seeds",
        "difference",
        "p",
        "verdict",
        "state floats",
        "parameters",
        *speeds,
        "marks",
    ]


def _known(found: SideBySide) -> list[str]:
    return [question for question in ASKED if any(question in ways for ways in found.ways.values())]


def rows(found: SideBySide) -> list[list[str]]:
    """One for every variant on every task."""
    return [_row(found, line) for line in found.lines]


def _row(found: SideBySide, line: Line) -> list[str]:
    row, difference = line.row, line.difference
    accuracy = accuracy_words(row.mean, row.spread)
    interval = (
        "–"
        if difference is None
        else f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
    )
    p = "–" if line.p is None else probability(line.p)
    state, parameters = ("undeclared" if value is None else f"{value:,.0f}" for value in _sizes(line))
    speeds = [_speed(found, line, question) for question in _known(found)]
    return [
        line.task,
        row.label,
        accuracy,
        str(len(row.accuracies)),
        interval,
        p,
        line.verdict,
        state,
        parameters,
        *speeds,
        ", ".join(row.marks),
    ]


def _speed(found: SideBySide, line: Line, question: str) -> str:
    """A number, why there is none of what was measured, or a dash."""
    way, layer = found.way(line, question), layer_of(line.row.results[0])
    if way is None or layer is None:
        return "–"
    rate = way.rates.get(layer)
    return way.why_not(layer) or "–" if rate is None else thousands(rate)


def _sizes(line: Line) -> tuple[float | None, float | None]:
    """State floats and parameters; None where they are not declared, or the model was never built."""
    size: dict[str, Any] = next((result["model"] for result in line.row.results if result["model"]), {})
    return (size.get("state") or {}).get("total"), size.get("parameters")


def caption(found: SideBySide) -> str:
    """Return in Markdown what the columns mean, and what a verdict is."""
    results = [result for line in found.lines for result in line.row.results]
    seeds = ", ".join(map(str, sorted({result["cell"]["seed"] for result in results})))
    devices = ", ".join(
        escape.markdown(device) for device in sorted({result["cell"]["device"] for result in results})
    )
    about, first = NOTES.get(found.form, escape.markdown(f"{found.form} form.")), escape.markdown(found.first)
    words = (
        f"{about} Test accuracy, mean ± standard deviation over seeds ({seeds}; {devices}); diverged runs"
        f" count as chance. Difference: to {first}, with its own 95 % interval by Welch's t. Better and worse"
        f" are shown at {ALPHA:g} among all verdicts of this table: p is by Holm's correction. Sizes that"
        f" differ by more than {TOLERANCE:.0%} are not comparable, nor is a state that grows with the length"
        " beside one that does not; where a state is undeclared parameters alone are compared. Results that"
        " are undertrained, or whose learning rate was the first or last of all tried, take part in no"
        f" verdict.{_former(results)} State floats are those of one sequence at the longest tested"
        f" length.{_speeds(found)} {laws_said([line.row for line in found.lines])}"
    )
    return words.rstrip()


def _former(results: Sequence[Result]) -> str:
    """What the marks of rules of former days say, where there are any."""
    return "".join(
        f" {rule.mark}: {rule.says}."
        for rule in formers()
        if any(rule.mark in result["marks"] for result in results)
    )


def _speeds(found: SideBySide) -> str:
    """What the columns of speeds mean, where there are any."""
    told: dict[str, list[str]] = {}
    for task, ways in found.ways.items():
        for way in ways.values():
            told.setdefault(way.about, []).append(task)
    every = len(found.ways)
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


def page(found: SideBySide) -> str:
    """In Markdown."""
    title = escape.markdown(f"Beside {found.first}, {found.form}")
    return f"### {title}\n\n{markdown(columns(found), rows(found), left=LEFT)}\n\n{caption(found)}\n"


def plain(found: SideBySide) -> dict[str, Any]:
    """As JSON values."""
    lines = []
    for line in found.lines:
        difference, (state, parameters) = line.difference, _sizes(line)
        lines.append(
            {
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
                "tokens_per_second": {question: _plain(found, line, question) for question in ASKED},
                "marks": line.row.marks,
            }
        )
    return {"form": found.form, "first": found.first, "rows": lines}


def _plain(found: SideBySide, line: Line, question: str) -> dict[str, Any] | None:
    """A speed with how it was measured; None: it was not, or not soundly."""
    way, layer = found.way(line, question), layer_of(line.row.results[0])
    if way is None or layer is None or layer not in way.rates:
        return None
    return {**way.rates[layer]._asdict(), "measured": way.about}
