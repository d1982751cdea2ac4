"""Stored results of several folders, found by what was run and on which kind of device."""

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from linbench.bench.case import cpu_independent_id
from linbench.common.hashing import canonical, digest
from linbench.engine.former import results_at_chosen_rates
from linbench.engine.ladder import final_result
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings
from linbench.experiments.pattern import split_task
from linbench.experiments.suite import Suite, SuiteTask
from linbench.results.comparison import Comparison, comparisons
from linbench.results.folders import each_once, without_submissions
from linbench.results.schema.benchmarks import SpeedResult
from linbench.results.schema.cells import CellResult
from linbench.results.speeds import Speeds, speeds
from linbench.results.store import CELL, SPEED, Store
from linbench.results.submission import Submission


class Stored:
    """The results of some folders, and apart from them the submissions there, which decide nothing."""

    def __init__(self, stores: Iterable[Store]) -> None:
        every = each_once(stores)
        self.submissions = [store for store in every if isinstance(store, Submission)]
        self.stores = without_submissions(every)
        self.by_folder = {store.folder: store.by_kind() for store in self.stores}
        folders = self.by_folder.values()
        self.results = {result["id"]: result for kept in folders for result in kept[CELL]}
        self.speeds = {result["id"]: result for kept in folders for result in kept[SPEED]}

    @property
    def set_aside(self) -> dict[Path, str]:
        """The files that do not count, each with the reason."""
        return {
            path: why for store in (*self.stores, *self.submissions) for path, why in store.set_aside.items()
        }

    @cached_property
    def timed(self) -> dict[str, SpeedResult]:
        """The timings of layers by `cpu_independent_id`; of several CPUs, the latest."""
        by_date = sorted(self.speeds.values(), key=lambda result: result.get("when", ""))
        return {cpu_independent_id(result["bench"]): result for result in by_date}

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of devices that have results."""
        of_cells = {result["cell"]["device"] for result in self.results.values()}
        of_timings = {result["bench"]["device"] for result in self.speeds.values()}
        return sorted(of_cells | of_timings)

    @cached_property
    def _shown_together(self) -> list[tuple[Path, Comparison | Speeds]]:
        """The results that one figure shows, folder by folder."""
        tables: list[tuple[Path, Comparison | Speeds]] = []
        for folder, kept in self.by_folder.items():
            tables += [(folder, comparison) for comparison in comparisons(kept[CELL])]
            tables += [(folder, alike) for alike in speeds(kept[SPEED])]
        return tables

    def pictures(self, ids: Collection[str], figure: str) -> list[Path]:
        """Return the pictures in these folders that show some of the results with these ids.

        Args:
            ids: of results.
            figure: the name of a figure, such as overwrites.
        """
        paths: list[Path] = []
        for folder, shown in self._shown_together:
            if any(result["id"] in ids for result in shown.results):
                name = shown.slug(figure) if isinstance(shown, Speeds) else f"{shown.slug}-{figure}"
                drawn = [folder / "figures" / f"{name}.{suffix}" for suffix in ("svg", "png")]
                paths += [path for path in drawn if path.is_file()][:1]
        return paths

    @cached_property
    def _task_settings(self) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
        """All task settings that have results, by kind of device, task and model."""
        by_key: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
        for result in self.results.values():
            cell = result["cell"]
            settings = dict(cell["task"]["settings"])
            key = (cell["device"], cell["task"]["name"], _mixers(result["label"]))
            by_key.setdefault(key, {})[canonical(settings)] = settings
        return {key: list(different.values()) for key, different in by_key.items()}

    def any(self, suite: Suite, model: str, kind: str) -> bool:
        """Return whether there may be results of a suite's tasks by a model.

        This is quick, while to work out the cells and look for their results is not.
        """
        for task in suite.tasks:
            fixed = _fixed(suite, task).items()
            key = (kind, split_task(task.task)[0], _mixers(model))
            for settings in self._task_settings.get(key, ()):
                if all(settings.get(name) == value for name, value in fixed):
                    return True
        return False

    def find(self, cells: Sequence[Cell], search: SearchSettings | None, kind: str) -> dict[str, CellResult]:
        """Return the results that cells have on a kind of device.

        Args:
            cells: what was run, on whatever device.
            search: how their learning rate was searched; results are those at the rate that it found. If the
                search has not been run, results at rates that a former one chose count, and are marked
                (`linbench.engine.former`).
            kind: the kind of device.

        Returns:
            results by the ids of `cells`.
        """

        def stored(cell: Cell) -> CellResult | None:
            return self.results.get(digest({**cell.identity, "device": kind}))

        if search:
            return results_at_chosen_rates(cells, stored, search)
        return {cell.id: result for cell in cells if (result := final_result(cell, stored))}


def _mixers(label: str) -> str:
    """Return a model's pattern without settings: results from before a setting existed do not name it."""
    return re.sub(r"\[[^\[\]]*\]", "", label)


def _fixed(suite: Suite, task: SuiteTask) -> dict[str, int]:
    """Return the whole numbers among the settings that all cells of a suite's task share.

    Other settings may be written in several ways and are not compared.
    """
    given = {
        name.removeprefix("task."): value
        for name, value in {**suite.set, **task.set}.items()
        if name.startswith("task.") and name not in suite.grid
    }
    return {name: value for name, value in given.items() if isinstance(value, int)}
