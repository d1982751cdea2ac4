"""The runs of a published table, how many are left, and what they may cost."""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from linbench.engine.cost import CostModel, estimate_seconds, total_seconds
from linbench.engine.groups import groups
from linbench.experiments.cell import Cell
from linbench.experiments.device import device_class
from linbench.reproduction.choice import choosing, needed
from linbench.reproduction.schema import PublishedTable
from linbench.reproduction.stored import Stored
from linbench.reproduction.table import Reproduction, Runs, each_cell_once


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


def planned(
    tables: Iterable[Reproduction], device: str, *, switches: bool
) -> list[tuple[PublishedTable, Runs]]:
    """Return tables with their runs on a device; with `switches` also each as every switch changes it."""
    changed = [
        each for one in tables for each in (one, *map(one.switched, one.table.switches if switches else ()))
    ]
    return [(each.table, each.runs(device)) for each in changed]


def choosing_cells(every: Iterable[tuple[PublishedTable, Runs]]) -> list[Cell]:
    """Return the cells that choose among the settings of planned tables, each once."""
    return each_cell_once(
        cell for table, runs in every for settings in runs.values() for cell in choosing(table, settings)
    )


def needed_cells(every: Iterable[tuple[PublishedTable, Runs]], stored: Stored, device: str) -> list[Cell]:
    """Return all cells that planned tables take, each once, as far as results tell the chosen settings."""
    find = partial(stored.get, kind=device_class(device))
    return each_cell_once(
        cell
        for table, runs in every
        for (_, column), settings in runs.items()
        for cell in needed(table, column, settings, find)
    )


def missing(cells: Iterable[Cell], stored: Stored, device: str) -> list[Cell]:
    """Return the cells that have no result on a kind of device."""
    return [cell for cell in cells if stored.get(cell, device_class(device)) is None]


def plan(one: Reproduction, stored: Stored, cost: CostModel | None, device: str, *, switches: bool) -> Plan:
    """Return what is left to run of a table on a device, judged by a cost model."""
    cells = needed_cells(planned([one], device, switches=switches), stored, device)
    left = missing(cells, stored, device)
    seconds = [estimate_seconds(group, cost) for group in groups(left)]
    return Plan(
        one.id,
        len(cells),
        len(left),
        sum(cell.curriculum.tokens(cell.steps) for cell in left),
        total_seconds(seconds),
    )
