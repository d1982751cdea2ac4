"""Tables of accuracy by budget: what each model had learned on every rung of its ladders."""

from collections import Counter
from collections.abc import Sequence

from linbench.report.style.wording import million_tokens
from linbench.report.table import NO_VALUE, Cell, Column, Records, Table
from linbench.report.tables import comparison_kind
from linbench.results.budgets import CONFIDENCE, BudgetScore, budget_scores, has_budgets
from linbench.results.comparison import Comparison, Row

CAPTION = (
    "Test accuracy with rising budgets, in multiples of the lowest: mean over seeds with its"
    f" {100 * CONFIDENCE:g} % interval by Student's t. Ladders that ended before a budget count with their"
    " last rung; without the rung of a seed whose ladder may go on there is no mean. Ended: seeds whose"
    " ladders ended at the optimum, flat, or at the largest budget (cap)."
)


def table(comparison: Comparison) -> Table | None:
    """Return a row for each model; None if none was trained with several budgets."""
    if not has_budgets(comparison.rows):
        return None
    scores = budget_scores(comparison.rows)
    longest = max(scores, key=len)
    if not longest:
        return None
    columns = (
        Column("model", numeric=False),
        *(Column(_heading(score)) for score in longest),
        Column("ended", numeric=False),
    )
    rows = [
        (Cell(row.label), *_cells(own, len(longest)), Cell(_ends(row)))
        for row, own in zip(comparison.rows, scores, strict=True)
    ]
    return Table(
        f"{comparison.title}, {comparison.form}: accuracy by budget",
        columns,
        tuple(rows),
        CAPTION,
        f"{comparison.slug}-budgets",
        records=_records(comparison.rows, scores),
        device=comparison.device,
    )


TABLES = comparison_kind("accuracy by budget", table, order=14)


def _heading(score: BudgetScore) -> str:
    return f"{1 << score.doublings}x ({million_tokens(score.tokens)})"


def _cells(scores: Sequence[BudgetScore], most: int) -> list[Cell]:
    cells = [Cell(_words(score), score.mean) for score in scores]
    return cells + [NO_VALUE] * (most - len(cells))


def _words(score: BudgetScore) -> str:
    if score.interval is None:
        return f"{score.mean:.3f}"
    low, high = score.interval
    return f"{score.mean:.3f} [{low:.3f}, {high:.3f}]"


def _ends(row: Row) -> str:
    """Return how the ladders of a row ended, with the number of seeds."""
    ends = Counter(result["ladder"]["ended"] if "ladder" in result else "not yet" for result in row.results)
    return ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))


def _records(rows: Sequence[Row], scores: Sequence[Sequence[BudgetScore]]) -> Records:
    return [
        {
            "model": row.label,
            "times": 1 << score.doublings,
            "tokens": score.tokens,
            "seeds": len(score.accuracies),
            "mean": score.mean,
            "low": score.interval[0] if score.interval else None,
            "high": score.interval[1] if score.interval else None,
        }
        for row, own in zip(rows, scores, strict=True)
        for score in own
    ]
