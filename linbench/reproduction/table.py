"""The published tables that come with linbench, and the cells that each of their values needs.

Every file in the folder `tables` is read; no list names them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property

from linbench.common.errors import UserError, unknown
from linbench.common.scan import data_files
from linbench.common.settings import without
from linbench.common.yaml_files import read_mapping
from linbench.experiments.cell import Cell
from linbench.experiments.suite import Suite, SuiteModel, blocks, keep_models
from linbench.reproduction import tables as files
from linbench.reproduction.printed import Printed
from linbench.reproduction.schema import PublishedColumn, PublishedRow, PublishedTable, Trust

Runs = dict[tuple[str, str], list[list[Cell]]]
"""Runs of values by row and column: for each a list of settings, each with the cells of all seeds."""


def each_cell_once(cells: Iterable[Cell]) -> list[Cell]:
    """Return the first cell of each id: values of a table share runs."""
    by_id: dict[str, Cell] = {}
    for cell in cells:
        by_id.setdefault(cell.id, cell)
    return list(by_id.values())


def cells_of(runs: Runs) -> list[Cell]:
    """Return all cells of runs, each once."""
    return each_cell_once(cell for settings in runs.values() for seeds in settings for cell in seeds)


@dataclass(frozen=True)
class PrintedCell:
    """One printed value, with the row and the column where it stands."""

    row: str
    column: str
    printed: Printed


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A published table and what it takes to run it; each is equal to itself alone."""

    id: str
    table: PublishedTable

    @property
    def number(self) -> int:
        """The number in its id."""
        return int(self.id[1:])

    @cached_property
    def printed(self) -> list[PrintedCell]:
        """All printed values, row by row."""
        return [
            PrintedCell(name, heading, value)
            for name, row in self.table.rows.items()
            for heading, value in zip(self.table.columns, row.printed, strict=True)
            if value is not None
        ]

    def needs(self, cell: PrintedCell) -> str | None:
        """Return what linbench lacks for a value; None if it can run."""
        return self.table.rows[cell.row].needs

    def trust(self, cell: PrintedCell) -> Trust:
        """Return where a value was read: as its row says, or its column, or the table."""
        table = self.table
        return table.rows[cell.row].trust or table.columns[cell.column].trust or table.trust

    def runs(self, device: str = "cpu") -> Runs:
        """Return the runs of every value that linbench can run, by row and column.

        Args:
            device: where they run.

        Returns: for each value a list of settings of the grid, each with the cells of all seeds.

        Raises UserError: a setting that is not allowed.
        """
        found: Runs = {}
        for number, (heading, column) in enumerate(self.table.columns.items()):
            names = [
                name
                for name, row in self.table.rows.items()
                if row.needs is None and row.values[number] is not None
            ]
            if not names:
                continue
            suite_blocks, missing = blocks(self._suite(column, names), device=device)
            if missing:
                raise UserError(f"{self.id}: {next(iter(missing.values()))} Say what such a row needs.")
            for block in suite_blocks:
                for name, (_, cells) in zip(names, block.rows, strict=True):
                    found.setdefault((name, heading), []).append(cells)
        return found

    def part(self, rows: Sequence[str], columns: Sequence[str]) -> "Reproduction":
        """Return the table with some rows and columns alone, and the same switches.

        Args:
            rows: names of rows, or patterns in which * stands for anything; empty: all.
            columns: the same of columns.

        Raises UserError: no row or column has such a name.
        """
        table = self.table
        headings = _matching(f"column of {self.id}", columns, list(table.columns))
        labels = _matching(f"row of {self.id}", rows, list(table.rows))
        places = [list(table.columns).index(heading) for heading in headings]
        changes = {
            "columns": {heading: table.columns[heading] for heading in headings},
            "rows": {name: _at(row, places, kept=name in labels) for name, row in table.rows.items()},
        }
        return Reproduction(self.id, table.model_copy(update=changes))

    def switched(self, name: str) -> "Reproduction":
        """Return the part of the table that a switch is tried on, with what it changes.

        Args:
            name: of the switch.
        """
        table, switch = self.table, self.table.switches[name]
        headings = [
            heading for heading in table.columns if switch.columns is None or heading in switch.columns
        ]
        columns = {
            heading: table.columns[heading].model_copy(
                update={"set": {**table.columns[heading].set, **switch.set}}
            )
            for heading in headings
        }
        places = [list(table.columns).index(heading) for heading in headings]
        rows = {
            label: _at(row, places, kept=switch.rows is None or label in switch.rows).model_copy(
                update={
                    "model": switch.models.get(label, row.model or label),
                    "set": without(row.set, switch.set),
                }
            )
            for label, row in table.rows.items()
        }
        changes = {
            "columns": columns,
            "rows": rows,
            "set": without(table.set, switch.set),
            "grid": without({**table.grid, **switch.grid}, switch.set),
        }
        return Reproduction(self.id, table.model_copy(update=changes))

    def _suite(self, column: PublishedColumn, names: list[str]) -> Suite:
        """Return the suite of some rows in one column."""
        table = self.table
        task = column.model_dump(exclude={"of", "trust"}, exclude_unset=True)
        models = {name: _model(name, row) for name, row in table.rows.items() if row.needs is None}
        shared = table.model_dump(include={"form", "protocol", "seeds", "set", "grid"})
        values = {"about": table.title, "tasks": [task], "models": [*models.values()], **shared}
        return keep_models(Suite.parse(values, where=self.id), [models[name] for name in names])


def _matching(what: str, patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that some pattern matches, or all without a pattern."""

    def matches(name: str, pattern: str) -> bool:
        return name == pattern or fnmatchcase(name, pattern)  # brackets mean something in a pattern

    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            raise unknown(what, pattern, names)
    return [name for name in names if not patterns or any(matches(name, each) for each in patterns)]


def _at(row: PublishedRow, places: Sequence[int], *, kept: bool) -> PublishedRow:
    """Return a row with the values at some places alone; a row that is not kept has none.

    It stays in the table, whose settings may be of its mixer.
    """
    values = tuple(row.values[place] if kept else None for place in places)
    return row.model_copy(update={"values": values})


def _model(name: str, row: PublishedRow) -> SuiteModel:
    return SuiteModel(model=row.model or name, set=row.set)


@cache
def reproductions() -> dict[str, Reproduction]:
    """Return all published tables by their ids, in the order of their numbers.

    Raises UserError: a file is not a valid table.
    """
    return {one.id: one for one in sorted(_read(), key=lambda one: one.number)}


def find(name: str) -> Reproduction:
    """Return the table of an id such as R3, in either case. Raises UserError: there is none."""
    known = reproductions()
    if name.upper() not in known:
        raise unknown("published table", name, known)
    return known[name.upper()]


def _read() -> Iterator[Reproduction]:
    for name, path in data_files(files, ".yaml").items():
        if not re.fullmatch("R[1-9][0-9]*", name):
            raise unknown("published table", name, ["R1"])
        values = read_mapping(path, "published table", PublishedTable.model_fields)
        yield Reproduction(name, PublishedTable.parse(values, where=name))
