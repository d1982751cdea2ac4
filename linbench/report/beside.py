"""Variants side by side, in words."""

from typing import Any

from linbench.beside import ALPHA, Line, SideBySide
from linbench.report.lines import markdown, probability
from linbench.report.tables import NOTES, accuracy_words
from linbench.sizes import TOLERANCE

LEFT = {"task", "model", "verdict", "marks"}
COLUMNS = ["task", "model", "accuracy", "seeds", "difference", "p", "verdict", "state floats", "parameters", "marks"]


def rows(found: SideBySide) -> list[list[str]]:
    """One for every variant on every task."""
    return [_row(line) for line in found.lines]


def _row(line: Line) -> list[str]:
    row, difference = line.row, line.difference
    accuracy = accuracy_words(row.mean, row.spread)
    interval = "–" if difference is None else f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
    p = "–" if line.p is None else probability(line.p)
    state, parameters = ("undeclared" if value is None else f"{value:,.0f}" for value in _sizes(line))
    return [line.task, row.label, accuracy, str(len(row.accuracies)), interval, p, line.verdict, state, parameters, ", ".join(row.marks)]


def _sizes(line: Line) -> tuple[float | None, float | None]:
    """State floats and parameters; None where they are not declared, or the model was never built."""
    size: dict[str, Any] = next((result["model"] for result in line.row.results if result["model"]), {})
    return (size.get("state") or {}).get("total"), size.get("parameters")


def caption(found: SideBySide) -> str:
    """What the columns mean, and what a verdict is."""
    results = [result for line in found.lines for result in line.row.results]
    seeds = ", ".join(map(str, sorted({result["cell"]["seed"] for result in results})))
    devices = ", ".join(sorted({result["cell"]["device"] for result in results}))
    return (
        f"{NOTES[found.form]} Test accuracy, mean ± standard deviation over seeds ({seeds}; {devices}); diverged runs count as chance. "
        f"Difference: to {found.first}, with its own 95 % interval by Welch's t. Better and worse are shown at {ALPHA:g} among all verdicts of "
        f"this table: p is by Holm's correction. Sizes that differ by more than {TOLERANCE:.0%} are not comparable, nor is a state that grows with "
        "the length beside one that does not; results that are undertrained, or whose learning rate was the first or last of all tried, take part "
        "in no verdict. State floats are those of one sequence at the longest tested length."
    )


def page(found: SideBySide) -> str:
    """In Markdown."""
    return f"### Beside {found.first}, {found.form}\n\n{markdown(COLUMNS, rows(found), left=LEFT)}\n\n{caption(found)}\n"


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
                "marks": line.row.marks,
            }
        )
    return {"form": found.form, "first": found.first, "rows": lines}
