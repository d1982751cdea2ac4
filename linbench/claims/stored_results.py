"""Results of several folders, by what was run and on which kind of device."""

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from linbench.bench.case import anywhere
from linbench.common.hashing import canonical, digest
from linbench.engine.former import results_at_chosen_rates
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings
from linbench.experiments.pattern import split_task
from linbench.experiments.suite import Suite, SuiteTask
from linbench.results.comparison import Comparison, comparisons
from linbench.results.record import Result
from linbench.results.speeds import Speeds, speeds
from linbench.results.store import CELL, SPEED, Store


class Stored:
    """What stands in some folders."""

    def __init__(self, stores: Iterable[Store]) -> None:
        by_place: dict[Path, Store] = {}
        for store in stores:
            by_place.setdefault(store.folder.resolve(), store)  # of two names of one folder the first
        self.stores = list(by_place.values())
        self.by_folder = {store.folder: store.by_kind() for store in self.stores}
        self.results, self.speeds = (
            {result["id"]: result for kept in self.by_folder.values() for result in kept[kind]}
            for kind in (CELL, SPEED)
        )

    @property
    def set_aside(self) -> dict[Path, str]:
        """Files that do not count, each with the reason."""
        return {path: why for store in self.stores for path, why in store.set_aside.items()}

    @cached_property
    def timed(self) -> dict[str, Result]:
        """Speeds by what was asked, `anywhere`; of several CPUs' the last."""
        return {
            anywhere(result["bench"]): result
            for result in sorted(self.speeds.values(), key=lambda one: one.get("when", ""))
        }

    @cached_property
    def devices(self) -> list[str]:
        """The kinds of devices that anything was run on."""
        return sorted(
            {
                result[what]["device"]
                for what, results in (("cell", self.results), ("bench", self.speeds))
                for result in results.values()
            }
        )

    @cached_property
    def _shown(self) -> list[tuple[Path, Comparison | Speeds]]:
        """What is drawn together in each folder."""
        found: list[tuple[Path, Comparison | Speeds]] = []
        for folder, kept in self.by_folder.items():
            found += [(folder, comparison) for comparison in comparisons(kept[CELL])]
            found += [(folder, alike) for alike in speeds(kept[SPEED])]
        return found

    def pictures(self, ids: Collection[str], kind: str) -> list[Path]:
        """The figures of a kind that are drawn, among others, from results with these ids, and are there."""
        shown = [
            (folder, each)
            for folder, each in self._shown
            if any(result["id"] in ids for result in each.results)
        ]
        names = [
            (folder, each.slug(kind) if isinstance(each, Speeds) else f"{each.slug}-{kind}")
            for folder, each in shown
        ]
        return [path for folder, name in names if (path := folder / "figures" / f"{name}.png").is_file()]

    @cached_property
    def _asked(self) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
        found: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
        for result in self.results.values():
            cell = result["cell"]
            settings = cell["task"]["settings"]
            found.setdefault((cell["device"], cell["task"]["name"], _mixers(result["label"])), {})[
                canonical(settings)
            ] = settings
        return {key: list(of.values()) for key, of in found.items()}

    def any(self, suite: Suite, model: str, device: str) -> bool:
        """Whether there may be results of a suite's tasks by a model: to look is quick, to work out which
        cells these would be is not."""
        return any(
            all(settings.get(name) == value for name, value in _fixed(suite, task).items())
            for task in suite.tasks
            for settings in self._asked.get((device, split_task(task.task)[0], _mixers(model)), ())
        )

    def find(self, cells: Sequence[Cell], search: SearchSettings | None, device: str) -> dict[str, Result]:
        """The results that these cells have on that kind of device, at the rate that a search there has
        found, by the ids of `cells`; where the search as asked has not been run, those that a former rule
        chose, marked, as `linbench.engine.former` says."""

        def found(cell: Cell) -> Result | None:
            return self.results.get(digest({**cell.identity, "device": device}))

        if search:
            return results_at_chosen_rates(cells, found, search)
        return {cell.id: result for cell in cells if (result := found(cell))}


def _mixers(label: str) -> str:
    """Return a model's pattern without its settings: results of before a setting was there do not name it."""
    return re.sub(r"\[[^\[\]]*\]", "", label)


def _fixed(suite: Suite, task: SuiteTask) -> dict[str, int]:
    """What every cell of a suite's task has: of whole numbers alone it is plain how a result has them."""
    given = {
        name: value
        for name, value in {**suite.set, **task.set}.items()
        if name.startswith("task.") and name not in suite.grid
    }
    return {name.removeprefix("task."): value for name, value in given.items() if isinstance(value, int)}
