"""Tables of what became of published numbers, for a terminal, Markdown and JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from linbench.common.parsing import parse_seeds
from linbench.common.text import pluralize
from linbench.report.table import NO_VALUE, Cell, Column, Table
from linbench.reproduction.attribution import Attribution
from linbench.reproduction.outcome import Outcome, Verdict
from linbench.reproduction.schema import SELECT, TRUST, UNITS, PublishedColumn, PublishedRow, Trust
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

_SWITCHES = (
    Column("switch", numeric=False),
    Column("model", numeric=False),
    Column("column", numeric=False),
    Column("printed", numeric=False, align="right"),
    Column("before"),
    Column("after"),
    Column("change", numeric=False, align="right"),
    Column("explained", optional=1),
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
    caption = "Name a table to see it, value by value."
    return Table("Published tables", _LIST, tuple(rows), caption, slug="reproduction")


def ledger(one: Reproduction, outcomes: Sequence[Outcome], kind: str) -> Table:
    """Return printed values beside ours, a line for each, with a caption that says how they were chosen."""
    rows = tuple(_line(outcome) for outcome in outcomes)
    records = [{"table": one.id, "device": kind, **record(outcome)} for outcome in outcomes]
    title = f"{one.id}: {one.table.title}, on {kind}"
    return Table(title, _LEDGER, rows, _caption(one), slug=f"reproduction-{one.id}", records=records)


def of_switches(one: Reproduction, found: Sequence[Attribution], kind: str) -> Table:
    """Return the change that every switch makes of every value it is tried on, a line for each."""
    rows = tuple(_switch_line(each) for each in found)
    records = [{"table": one.id, "device": kind, **_switch_record(each)} for each in found]
    expected = "; ".join(f"of “{name}” that {switch.expects}" for name, switch in one.table.switches.items())
    caption = (
        "Change: the difference of the means over seeds, each at the setting that was chosen there, with an"
        " interval of 95% by Welch's t. Explained: the share of the gap from our mean to the printed number"
        " that the change closes; below 0% the gap grew, and above 100% the change went past the printed"
        f" number. Expected before any was run: {expected}."
    )
    title = f"{one.id}, switches: {one.table.title}, on {kind}"
    return Table(title, _SWITCHES, rows, caption, slug=f"switches-{one.id}", records=records)


def _switch_line(each: Attribution) -> tuple[Cell, ...]:
    change, explained = each.change, each.explained
    words = "–" if change is None else f"{change.mean:+.1f} [{change.low:+.1f}, {change.high:+.1f}]"
    return (
        Cell(each.switch),
        Cell(each.before.cell.row),
        Cell(each.before.cell.column),
        Cell(each.before.cell.printed.text),
        _number(fmean(each.before.seeds) if each.before.seeds else None),
        _number(fmean(each.after.seeds) if each.after.seeds else None),
        Cell(words),
        NO_VALUE if explained is None else Cell(f"{explained:.0%}", explained),
        Cell(each.after.reason),
    )


def _switch_record(each: Attribution) -> dict[str, Any]:
    change = each.change
    return {
        "switch": each.switch,
        "model": each.before.cell.row,
        "column": each.before.cell.column,
        "printed": each.before.cell.printed.text,
        "before": list(each.before.seeds),
        "after": list(each.after.seeds),
        "change": None if change is None else change._asdict(),
        "explained": each.explained,
        "why": each.after.reason,
    }


def record(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON values."""
    return {
        "model": outcome.cell.row,
        "column": outcome.cell.column,
        "printed": outcome.cell.printed.text,
        "ours": outcome.ours,
        "difference": outcome.difference,
        "seeds": list(outcome.seeds),
        "verdict": outcome.verdict,
        "why": outcome.reason,
        "left": outcome.left,
    }


def _line(outcome: Outcome) -> tuple[Cell, ...]:
    seeds = outcome.seeds
    return (
        Cell(outcome.cell.row),
        Cell(outcome.cell.column),
        Cell(outcome.cell.printed.text),
        _number(outcome.ours),
        _number(outcome.difference, "+z.1f"),
        _number(fmean(seeds) if seeds else None),
        Cell(f"{min(seeds):.1f} to {max(seeds):.1f}") if seeds else NO_VALUE,
        Cell(outcome.verdict),
        Cell(outcome.reason),
    )


def _number(value: float | None, form: str = "z.1f") -> Cell:
    return NO_VALUE if value is None else Cell(format(value, form), value)


def _read(one: Reproduction) -> str:
    """Return where the numbers were read: as the table says, and which of them elsewhere."""
    parts: dict[str, PublishedColumn | PublishedRow] = {**one.table.columns, **one.table.rows}
    elsewhere: dict[Trust, list[str]] = {}
    for name, part in parts.items():
        if part.trust:
            elsewhere.setdefault(part.trust, []).append(name)
    others = (f"{', '.join(names)}: {TRUST[trust]}" for trust, names in elsewhere.items())
    return "; ".join([TRUST[one.table.trust], *others])


def _caption(one: Reproduction) -> str:
    """Return what the numbers are, how they were chosen and read, and what differs from the publication."""
    table = one.table
    seeds = pluralize(len(parse_seeds(table.seeds)), "seed")
    grid = "; ".join(f"{name} of {', '.join(map(str, values))}" for name, values in table.grid.items())
    differs = f" What differs here: {'; '.join(table.differs)}." if table.differs else ""
    return (
        f"{table.source}. Numbers are {UNITS[table.unit]}, {_read(one)}. The paper prints"
        f" {SELECT[table.select]}, and our number is the same of our runs; mean and range are over {seeds} at"
        " the setting that was chosen."
        f"{f' Chosen among: {grid}.' if grid else ''} Within means at most {table.tolerance:g} points away."
        f"{differs}"
    )
