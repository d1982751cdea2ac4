"""Tables of the tokens that it takes to learn: the median of each variant, beside the fastest."""

from collections.abc import Sequence
from math import inf
from typing import Any

from linbench.common.text import pluralize
from linbench.report.style.wording import million_tokens, probability
from linbench.report.table import ABSENT, NO_VALUE, Cell, Column, Table
from linbench.report.tables import comparison_kind
from linbench.results.comparison import Comparison
from linbench.results.contrast import ALPHA
from linbench.results.learning_time import (
    Learning,
    can_be_shown,
    count_pairs,
    largest_budget,
    learning,
    threshold,
)
from linbench.results.permutation import MOST_EXACT, seeds_to_differ
from linbench.results.survival import Median


def table(comparison: Comparison) -> Table | None:
    """Return a table with a row for each variant; None without two seeds of any, or if no run has learned."""
    if not can_be_shown(comparison):
        return None
    found = learning(comparison)
    budget, columns = largest_budget(comparison), _columns(compared=count_pairs(found) > 0)
    rows = [_row(one, budget) for one in found]
    return Table(
        f"{comparison.title}, {comparison.form}: tokens to learn",
        columns,
        tuple(tuple(row[column.name] for column in columns) for row in rows),
        caption(comparison, found),
        f"{comparison.slug}-tokens-to-learn",
        records=[_record(one, budget) for one in found],
        device=comparison.device,
    )


TABLES = comparison_kind("tokens to learn", table, order=15)


def _columns(*, compared: bool) -> tuple[Column, ...]:
    return (
        Column("model", numeric=False),
        Column("learned"),
        Column("median tokens"),
        Column("95 % interval", align="left"),
        *([Column("p")] if compared else []),
        Column("marks", numeric=False, hide_empty=True),
    )


def _row(one: Learning, budget: int) -> dict[str, Cell]:
    """Return the cells of a variant by column."""
    cells = {"model": Cell(one.row.label), "marks": Cell(", ".join(one.row.marks))}
    if one.median is None:
        return cells | dict.fromkeys(["learned", "median tokens", "95 % interval", "p"], NO_VALUE)
    middle = one.median.time
    beyond, no_p = Cell(f"> {million_tokens(budget)}"), Cell("fastest") if one.reference else NO_VALUE
    return cells | {
        "learned": Cell(f"{one.learned} of {len(one.times)}", one.learned),
        "median tokens": beyond if middle == inf else Cell(million_tokens(middle), middle),
        "95 % interval": Cell(_interval(one.median, budget)),
        "p": no_p if one.p is None else Cell(probability(one.p), one.p),
    }


def _interval(median: Median, budget: int) -> str:
    """Return the interval of a median in words; a dash if there is none."""
    low, high = min(median.low, budget), median.high
    if high < inf:
        return f"{million_tokens(low)} to {million_tokens(high)}"
    return f"from {million_tokens(low)}" if low else ABSENT


def _record(one: Learning, budget: int) -> dict[str, Any]:
    middle = one.median
    low, high = (None, None) if middle is None else (middle.low, middle.high)
    return {
        "model": one.row.label,
        "seeds": len(one.times),
        "learned": one.learned,
        "median_tokens": None if middle is None or middle.time == inf else middle.time,
        "low": None if low is None or low == 0 else min(low, budget),
        "high": None if high == inf else high,
        "tokens_trained": budget,
        "p_holm": one.p,
        "fastest": one.reference,
        "marks": ", ".join(one.row.marks),
    }


def caption(comparison: Comparison, found: Sequence[Learning]) -> str:
    """Return what the columns mean, and what so many seeds can show."""
    looks = max(len(result["curve"]) for result in comparison.results)
    flat = " or whose ladder ended flat" if any("ladder" in result for result in comparison.results) else ""
    return (
        "Learned: seeds whose validation accuracy reached"
        f" {threshold(comparison.results[0]):.3f} (nine tenths of the way from chance to the optimum, or what"
        f" ends a run), of all that were measured. A run that diverged{flat} never learns. Median: the tokens"
        f" by which half of the seeds had learned, by Kaplan and Meier; runs were looked at {looks} times in"
        f" {million_tokens(largest_budget(comparison))}. Its interval, of the log-log kind, begins at the"
        " look before. There is none with fewer than five seeds, and no upper end where that may lie beyond"
        f" the budget.{_tests(found)}"
    )


def _tests(found: Sequence[Learning]) -> str:
    """Return what p is, and whether any difference could be shown; nothing where nothing is compared."""
    pairs = count_pairs(found)
    if not pairs:
        return ""
    width = " of the same width" if len({one.row.width for one in found}) > 1 else ""
    words = (
        f" p: of the log-rank test against the fastest{width}, exact up to {MOST_EXACT // 2} seeds a side, by"
        f" Holm's method for {pluralize(pairs, 'pair')}: the fastest was chosen after looking, so that all"
        " pairs are tests."
    )
    seeds = max(len(one.times) for one in found if one.comparable)
    needed = seeds_to_differ(pairs, alpha=ALPHA)
    if seeds >= needed:
        return words
    return (
        f"{words} With {pluralize(seeds, 'seed')} each no difference can be shown at {ALPHA:g}, however"
        f" large; with {needed} it can."
    )
