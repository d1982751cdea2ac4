"""Stored results by the ids of their cells, read one by one where they are asked for."""

from collections.abc import Iterable
from functools import cached_property

from linbench.common.hashing import digest
from linbench.experiments.cell import Cell
from linbench.results.folders import each_once, kinds_of_devices, without_submissions
from linbench.results.schema.cells import CellResult
from linbench.results.store import Store


class Stored:
    """The results that some folders have when they are first asked for.

    To read all of them takes many seconds, and a published table needs few.

    Attributes:
        stores: their folders, each once, without submissions.
    """

    def __init__(self, stores: Iterable[Store]) -> None:
        self.stores = without_submissions(each_once(stores))

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of devices that have results."""
        return sorted(kinds_of_devices(self.stores))

    @cached_property
    def _places(self) -> dict[str, Store]:
        """The first store that has a result, by its id."""
        found: dict[str, Store] = {}
        for store in self.stores:
            for name in {*store.loose_ids(), *store.packed_lines()}:
                found.setdefault(name, store)
        return found

    def get(self, cell: Cell, kind: str) -> CellResult | None:
        """Return the result of a cell on a kind of device, wherever the cell itself would run."""
        name = digest({**cell.identity, "device": kind})
        return self._places[name].get(name) if name in self._places else None

    def kinds_of(self, cells: Iterable[Cell]) -> list[str]:
        """Return the kinds of devices on which some of these cells have run."""
        every = list(cells)
        return [kind for kind in self.kinds if any(self.get(cell, kind) for cell in every)]
