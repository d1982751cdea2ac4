"""Our score of a published value by the paper's own rule of choice, and whether it is the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from linbench.common.text import pluralize
from linbench.experiments.cell import Cell
from linbench.reproduction.choice import Find, choose, needed
from linbench.reproduction.printed import class_of
from linbench.reproduction.schema import NOT_VERIFIED, PublishedTable
from linbench.reproduction.scores import SCORED
from linbench.reproduction.table import PrintedCell, Reproduction, Runs
from linbench.results.schema.cells import CellResult

Verdict = Literal["within", "outside", "not comparable"]


@dataclass(frozen=True)
class Outcome:
    """A published value beside ours.

    Attributes:
        cell: the printed value and where it stands.
        verdict: whether ours is within the tolerance.
        reason: why they cannot be compared, or a remark.
        ours: our score by the published rule of choice, in the table's unit; None if there is none.
        seeds: our scores of all seeds at the setting that was chosen.
        difference: ours less the printed value, 0 where a printed bound holds.
        left: runs that have no result yet.
    """

    cell: PrintedCell
    verdict: Verdict
    reason: str = ""
    ours: float | None = None
    seeds: tuple[float, ...] = ()
    difference: float | None = None
    left: int = 0


def outcomes(table: Reproduction, runs: Runs, find: Find) -> list[Outcome]:
    """Return what became of every printed value.

    Args:
        table: the published table.
        runs: its runs, on any device.
        find: a look-up of results of one kind of device.
    """
    return [_outcome(table, cell, runs.get((cell.row, cell.column), []), find) for cell in table.printed]


def _outcome(table: Reproduction, cell: PrintedCell, runs: Sequence[Sequence[Cell]], find: Find) -> Outcome:
    if needs := table.needs(cell):
        return Outcome(cell, "not comparable", f"needs {needs}")
    wanted = needed(table.table, cell.column, runs, find)
    left = sum(find(run) is None for run in wanted)
    if left:
        reason = (
            "not run yet" if left == len(wanted) else f"{left} of {pluralize(len(wanted), 'run')} missing"
        )
        return Outcome(cell, "not comparable", reason, left=left)
    chosen = choose(table.table, cell.column, runs, find)
    if chosen is None:
        return Outcome(cell, "not comparable", _why_unscored(table.table, [find(run) for run in wanted]))
    return _compare(table, cell, *chosen)


def _why_unscored(table: PublishedTable, results: Sequence[CellResult | None]) -> str:
    ended = [result["status"] for result in results if result and result["status"] not in SCORED]
    if ended:
        return f"{pluralize(len(ended), 'run')} ended as {ended[0]}"
    return f"the task has no score of the unit {table.unit}"


def _compare(one: Reproduction, cell: PrintedCell, chosen: Sequence[float], ours: float) -> Outcome:
    """Compare our number with the printed one; `chosen` are all seeds at its setting."""
    printed = cell.printed
    difference = printed.distance(ours)
    allowed = 0.0 if printed.number is None else one.table.tolerance
    verdict: Verdict = "within" if abs(difference) <= allowed else "outside"
    reason = ""
    if verdict == "outside" and one.trust(cell) in NOT_VERIFIED:
        verdict, reason = "not comparable", "the printed number is not verified"
    elif verdict == "outside" and printed.number is not None:
        both = {class_of(ours), class_of(printed.number)}
        reason = "" if len(both) > 1 or "between" in both else f"both {both.pop()}"
    return Outcome(cell, verdict, reason, ours, tuple(chosen), difference)
