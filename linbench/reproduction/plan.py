"""The runs of a published table, how many are left, and what they may cost."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from linbench.engine.cost import CostModel, estimate_seconds, total_seconds
from linbench.engine.groups import groups
from linbench.experiments.cell import Cell
from linbench.experiments.device import device_class
from linbench.reproduction.choice import choosing, needed
from linbench.reproduction.schema import PublishedTable
from linbench.reproduction.stored import Stored
from linbench.reproduction.table import Reproduction, Runs


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


def choosing_cells(one: Reproduction, device: str, *, switches: bool) -> list[Cell]:
    """Return the cells that choose among settings, of a table or of it and its switches, each once."""
    return _each_once(
        cell
        for table, runs in _runs(one, device, switches=switches)
        for settings in runs.values()
        for cell in choosing(table, settings)
    )


def needed_cells(one: Reproduction, stored: Stored, device: str, *, switches: bool) -> list[Cell]:
    """Return all cells that a table takes, as far as results tell which settings are chosen, each once."""
    find = partial(stored.get, kind=device_class(device))
    return _each_once(
        cell
        for table, runs in _runs(one, device, switches=switches)
        for (_, column), settings in runs.items()
        for cell in needed(table, column, settings, find)
    )


def missing(cells: Iterable[Cell], stored: Stored, device: str) -> list[Cell]:
    """Return the cells that have no result on a kind of device."""
    return [cell for cell in cells if stored.get(cell, device_class(device)) is None]


def _runs(one: Reproduction, device: str, *, switches: bool) -> Iterator[tuple[PublishedTable, Runs]]:
    yield one.table, one.runs(device)
    for name in one.table.switches if switches else ():
        switched = one.switched(name)
        yield switched.table, switched.runs(device)


def _each_once(cells: Iterable[Cell]) -> list[Cell]:
    return list({cell.id: cell for cell in cells}.values())


def plan(one: Reproduction, stored: Stored, cost: CostModel | None, device: str, *, switches: bool) -> Plan:
    """Return what is left to run of a table on a device, judged by a cost model."""
    cells = needed_cells(one, stored, device, switches=switches)
    left = missing(cells, stored, device)
    seconds = [estimate_seconds(group, cost) for group in groups(left)]
    return Plan(
        one.id,
        len(cells),
        len(left),
        sum(cell.curriculum.tokens(cell.steps) for cell in left),
        total_seconds(seconds),
    )
