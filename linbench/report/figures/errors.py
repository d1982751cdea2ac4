"""Kinds of answers: the right value, older values, other keys' values, and values that never occurred."""

from matplotlib.figure import Figure as Sheet

from linbench.report.figure import ComparisonFigure
from linbench.report.style.answer_kinds import DIVERGED, KINDS_NOTE, Answers, Shares, draw_answers, shares_of
from linbench.report.style.colors import Style
from linbench.report.style.labels import status_summary
from linbench.report.style.lines import styled
from linbench.results.comparison import Comparison, Row
from linbench.results.schema.cells import CellResult


def shares(result: CellResult) -> Shares | None:
    """Return the shares of all answers by their kinds; None for a task or run without them."""
    return shares_of(result["metrics"]) if result["status"] == "ok" else None


def draw(sheet: Sheet, comparison: Comparison) -> bool:
    """Draw a bar for every model, with a strip for each seed."""
    draw_answers(sheet, [_answers(row, style) for row, style in styled(comparison.rows)])
    return True


def _answers(row: Row, style: Style) -> Answers:
    seeds = [found for result in row.results if (found := shares(result))]
    diverged = sum(result["status"] == DIVERGED for result in row.results) if seeds else 0
    return Answers(row.label, style.colour, seeds, diverged, "" if seeds else status_summary(row))


def _applies(comparison: Comparison) -> bool:
    return any(shares(result) for result in comparison.results)


FIGURE = ComparisonFigure(
    name="errors",
    order=50,
    draw=draw,
    applies=_applies,
    marks_doubt=False,
    caption=f"""What each model answers, the best model at the top. {KINDS_NOTE} Each seed has a strip of its
        own. A seed that diverged is blank and stands below the others.""",
)
