"""A published table on a kind of device: its values, and its switches."""

from dataclasses import dataclass
from functools import cached_property, partial

from linbench.experiments.device import device_class
from linbench.reproduction.attribution import Attribution, attributions
from linbench.reproduction.choice import Find
from linbench.reproduction.outcome import Outcome, outcomes
from linbench.reproduction.stored import Stored
from linbench.reproduction.table import Reproduction, Runs, cells_of


@dataclass(frozen=True, eq=False)
class Ran:
    """A published table on a kind of device; each part is worked out where it is asked for.

    Attributes:
        one: the table.
        runs: its runs without a switch, on any device.
        kind: of device.
        find: a look-up of results of this kind.
    """

    one: Reproduction
    runs: Runs
    kind: str
    find: Find

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """The outcome of every printed value."""
        return outcomes(self.one, self.runs, self.find)

    @cached_property
    def switches(self) -> list[Attribution]:
        """The changes that switches make, value by value."""
        return attributions(self.one, self.outcomes, self.find)

    @property
    def scored(self) -> int:
        """The number of values that ours stands beside."""
        return sum(each.ours is not None for each in self.outcomes)


def ran(one: Reproduction, stored: Stored, place: str) -> list[Ran]:
    """Return a table on every kind of device that ran any of it, or else on this one.

    Args:
        one: the table.
        stored: results.
        place: a device of this kind.
    """
    runs = one.runs()
    kinds = stored.kinds_of(cells_of(runs)) or [device_class(place)]
    return [Ran(one, runs, kind, partial(stored.get, kind=kind)) for kind in kinds]


def most(found: list[Ran]) -> Ran:
    """Return the one that has most values, of equals the first."""
    return max(found, key=lambda each: each.scored)
