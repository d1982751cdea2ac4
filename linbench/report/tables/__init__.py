"""Tables of stored results, one module for each kind; a scan of this folder finds each by its `TABLES`."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from linbench.common.scan import submodules
from linbench.report.data import ReportData
from linbench.report.table import Table
from linbench.results.comparison import Comparison


@dataclass(frozen=True)
class TableKind:
    """A kind of table of stored results.

    Args:
        name: of the kind, for messages.
        make: returns all tables of the kind; none where the results have nothing that they show.
        order: its place among all kinds, the lowest first.
        printed: whether `linbench table` prints the tables; others are in its files and the report alone.
        source: the results that it shows, which decides where in the report its tables stand.
        of_comparison: returns the table of one comparison, beside which it stands in the report; None if it
            has nothing that the table shows. The whole is None for a kind that has no table of its own for a
            comparison.
    """

    name: str
    make: Callable[[ReportData], list[Table]]
    order: int = 100
    printed: bool = True
    source: Literal["models", "speeds"] = "models"
    of_comparison: Callable[[Comparison], Table | None] | None = None


def comparison_kind(name: str, make: Callable[[Comparison], Table | None], *, order: int) -> TableKind:
    """Return a kind with a table for each comparison, or for some.

    Args:
        name: of the kind.
        make: returns the table of a comparison; None if it has nothing that the table shows.
        order: its place among all kinds, the lowest first.
    """

    def make_all(data: ReportData) -> list[Table]:
        return [table for comparison in data.comparisons if (table := make(comparison)) is not None]

    return TableKind(name, make_all, order=order, of_comparison=make)


def by_training(comparisons: Iterable[Comparison]) -> dict[str, list[Comparison]]:
    """Return comparisons by what scores of several tasks must share: form, way of training and device."""
    alike: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        learned = ", until learned" if comparison.until_learned else ""
        alike.setdefault(f"{comparison.form} form{learned}, {comparison.device}", []).append(comparison)
    return alike


def table_kinds() -> list[TableKind]:
    """Return all kinds of tables, in their order."""
    modules = submodules(sys.modules[__name__])
    found = [module.TABLES for module in modules if hasattr(module, "TABLES")]
    return sorted(found, key=lambda kind: (kind.order, kind.name))


def all_tables(data: ReportData, *, printed: bool = False) -> list[Table]:
    """Return the tables of stored results; with `printed` those alone that `linbench table` prints."""
    return [table for kind in table_kinds() if kind.printed or not printed for table in kind.make(data)]


def tables_at_budget(data: ReportData, times: int, *, printed: bool = False) -> list[Table]:
    """Return the tables of ladders as they stood with so many times their base budget.

    Raises UserError: there is no such budget.
    """
    how = "their base budget" if times == 1 else f"{times} times their base budget"
    note = (
        f"Ladders stand as they did with {how}: one that ended before counts with its last rung, and one that"
        " has not come so far with its highest. What went on or is to go on is marked undertrained."
    )
    tables = all_tables(data.at_budget(times), printed=printed)
    return [replace(table, caption=f"{table.caption} {note}".strip()) for table in tables]
