"""The change that a switch of the set-up makes of our number, and the share of the gap that it closes."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from linbench.reproduction.choice import Find
from linbench.reproduction.outcome import Outcome, outcomes
from linbench.reproduction.table import Reproduction
from linbench.results.statistics import Difference, welch


@dataclass(frozen=True)
class Attribution:
    """A switch on one printed value.

    Attributes:
        switch: its name.
        before: the value without it.
        after: the value with it.
    """

    switch: str
    before: Outcome
    after: Outcome

    @property
    def change(self) -> Difference | None:
        """The change of the mean over seeds, with its interval; None where runs are missing."""
        if min(len(self.before.seeds), len(self.after.seeds)) < 2:
            return None
        return welch(self.after.seeds, self.before.seeds)

    @property
    def explained(self) -> float | None:
        """The share of the gap that the change closes; None without a gap, or where runs are missing.

        The gap is that of our mean to the printed number; a share above one passes it.
        """
        change = self.change
        if change is None or self.before.verdict == "within":
            return None
        gap = self.before.cell.printed.distance(fmean(self.before.seeds))
        return -change.mean / gap if gap else None


def attributions(one: Reproduction, before: Sequence[Outcome], find: Find) -> list[Attribution]:
    """Return all switches of a table, value by value.

    Args:
        one: the table.
        before: its values without a switch.
        find: a look-up of results of one kind of device.
    """
    at = {(each.cell.row, each.cell.column): each for each in before}
    found = []
    for name in one.table.switches:
        changed = one.switched(name)
        for after in outcomes(changed, changed.runs(), find):
            if changed.needs(after.cell) is None:
                found.append(Attribution(name, at[after.cell.row, after.cell.column], after))
    return found
