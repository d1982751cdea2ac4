"""Tables of what became of published numbers, for a terminal, Markdown and JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from linbench.common.parsing import parse_seeds
from linbench.common.text import pluralize
from linbench.report.table import NO_VALUE, Cell, Column, Table
from linbench.reproduction.outcome import Outcome, Verdict
from linbench.reproduction.schema import SELECT, TRUST, UNITS
from linbench.reproduction.table import Reproduction

VERDICTS: tuple[Verdict, ...] = ("within", "outside", "not comparable")

_LIST = (
    Column("table", numeric=False),
    Column("shows", numeric=False),
    Column("source", numeric=False, optional=1),
    Column("printed"),
    Column("runnable"),
    *(Column(verdict) for verdict in VERDICTS),
)

_LEDGER = (
    Column("model", numeric=False),
    Column("column", numeric=False),
    Column("printed", numeric=False, align="right"),
    Column("ours"),
    Column("difference"),
    Column("mean", optional=2),
    Column("range", numeric=False, align="right", optional=1),
    Column("verdict", numeric=False),
    Column("why", numeric=False, hide_empty=True),
)


def overview(found: Mapping[Reproduction, Sequence[Outcome]]) -> Table:
    """Return a line for every published table, with how many of its values ours are within or outside of."""
    rows = []
    for one, outcomes in found.items():
        counts = Counter(outcome.verdict for outcome in outcomes)
        runnable = sum(one.needs(cell) is None for cell in one.printed)
        numbers = [len(one.printed), runnable, *(counts[verdict] for verdict in VERDICTS)]
        texts = [one.id, one.table.title, one.table.source]
        rows.append((*map(Cell, texts), *(Cell(str(number), number) for number in numbers)))
    return Table("Published tables", _LIST, tuple(rows), slug="reproduction")


def ledger(one: Reproduction, outcomes: Sequence[Outcome], kind: str) -> Table:
    """Return printed values beside ours, a line for each, with a caption that says how they were chosen."""
    rows = tuple(_line(outcome) for outcome in outcomes)
    records = [{"table": one.id, "device": kind, **record(outcome)} for outcome in outcomes]
    title = f"{one.id}: {one.table.title}, on {kind}"
    return Table(title, _LEDGER, rows, _caption(one), slug=f"reproduction-{one.id}", records=records)


def record(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON values."""
    return {
        "model": outcome.cell.row,
        "column": outcome.cell.column,
        "printed": outcome.cell.printed.text,
        "ours": outcome.ours,
        "difference": outcome.difference,
        "mean": outcome.mean,
        "low": outcome.low,
        "high": outcome.high,
        "verdict": outcome.verdict,
        "why": outcome.reason,
        "left": outcome.left,
    }


def _line(outcome: Outcome) -> tuple[Cell, ...]:
    spread = NO_VALUE
    if outcome.low is not None and outcome.high is not None:
        spread = Cell(f"{outcome.low:.1f} to {outcome.high:.1f}")
    return (
        Cell(outcome.cell.row),
        Cell(outcome.cell.column),
        Cell(outcome.cell.printed.text),
        _number(outcome.ours),
        _number(outcome.difference, "+.1f"),
        _number(outcome.mean),
        spread,
        Cell(outcome.verdict),
        Cell(outcome.reason),
    )


def _number(value: float | None, form: str = ".1f") -> Cell:
    return NO_VALUE if value is None else Cell(format(value, form), value)


def _caption(one: Reproduction) -> str:
    """Return what the numbers are, how they were chosen and read, and what differs from the publication."""
    table = one.table
    seeds = pluralize(len(parse_seeds(table.seeds)), "seed")
    grid = "; ".join(f"{name} of {', '.join(map(str, values))}" for name, values in table.grid.items())
    differs = "".join(f" Different here: {text}." for text in table.differs)
    return (
        f"{table.source}. Numbers are {UNITS[table.unit]}, {TRUST[table.trust]}. The paper prints"
        f" {SELECT[table.select]}, and ours is the same of our runs; mean and range are over {seeds} at the"
        " setting that was chosen."
        f"{f' Chosen among: {grid}.' if grid else ''} Within means at most {table.tolerance:g} points away."
        f"{differs}"
    )
