"""The runs of a published table, how many are left, and what they may cost."""

from typing import NamedTuple

from linbench.engine.cost import CostModel, estimate_seconds, total_seconds
from linbench.engine.groups import groups
from linbench.experiments.cell import Cell
from linbench.experiments.device import device_class
from linbench.reproduction.stored import Stored
from linbench.reproduction.table import Reproduction, cells_of


class Plan(NamedTuple):
    """The work that a table takes.

    table: its id. runs: all of them. left: those without a result. tokens: that the ones left train on.
    seconds: that they may take; None if finished runs do not tell.
    """

    table: str
    runs: int
    left: int
    tokens: int
    seconds: float | None


def all_cells(one: Reproduction, device: str, *, switches: bool) -> list[Cell]:
    """Return the cells of a table, each once; with switches also those of every switch."""
    tried = one.table.switches if switches else ()
    return cells_of(one.runs(device), *(one.switched(name).runs(device) for name in tried))


def plan(one: Reproduction, stored: Stored, cost: CostModel | None, device: str, *, switches: bool) -> Plan:
    """Return what is left to run of a table on a device, judged by a cost model."""
    cells = all_cells(one, device, switches=switches)
    left = [cell for cell in cells if stored.get(cell, device_class(device)) is None]
    seconds = [estimate_seconds(group, cost) for group in groups(left)]
    return Plan(
        one.id,
        len(cells),
        len(left),
        sum(cell.curriculum.tokens(cell.steps) for cell in left),
        total_seconds(seconds),
    )
