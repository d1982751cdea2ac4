"""The source of measures of trained models: cells of a suite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from linbench.claims.evidence import Evidence
from linbench.claims.looks import LOOKS
from linbench.claims.measure import Measure, Source, Work
from linbench.claims.schema import MeasureSettings
from linbench.claims.scores import seed_evidence
from linbench.claims.seed_evidence import SeedEvidence
from linbench.claims.stored_results import Stored
from linbench.common.errors import UserError
from linbench.engine.former import cells_to_run, joining
from linbench.experiments.cell import Cell
from linbench.experiments.device import device_class
from linbench.experiments.labels import all_settings
from linbench.experiments.pattern import split_task
from linbench.experiments.suite import Suite, SuiteModel, SuiteTask, expand, load
from linbench.results.schema.cells import CellResult


@dataclass(frozen=True)
class CellSource(Source):
    """Cells of a suite that a file of claims writes down, or of part of a suite that comes with linbench."""

    name: str
    suite: Suite
    """The suite, with the models of all measures that look at it."""

    @classmethod
    def read(cls, name: str, given: Mapping[str, Any], models: Sequence[str], where: str) -> "CellSource":
        """Read cells. Raises UserError: see `Source.read`."""
        shipped = "suite" in given
        if shipped:
            suite = _part_of_suite(given, where)
            known = {model.model: model for model in suite.models}
        else:
            if "seeds" in given:
                raise UserError(f"{where}: seeds cannot be given; a claim asks for as many as decide it.")
            suite = Suite.parse({"about": where, "models": ["attention"], **given}, where=where)
            known = {model: SuiteModel(model=model) for model in models}
        if absent := [model for model in models if model not in known]:
            raise UserError(f"{where}: the suite {given['suite']} has no model {absent[0]}.")
        chosen = tuple(known[model] for model in models)
        return cls(name, suite.model_copy(update={"models": chosen, "seeds": "0"}))

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks that must be installed."""
        return [split_task(task.task)[0] for task in self.suite.tasks]

    def settings(self, model: str) -> dict[str, Any]:
        """Return the suite for one model. How rates are searched is the same for all, and left out."""
        own = [entry.set for entry in self.suite.models if entry.model == model]
        suite = self.suite.model_dump(mode="json", exclude={"about", "models", "seeds", "search"})
        return {**suite, "search": self.suite.search is not None, "own": own}

    def check(self, settings: MeasureSettings, where: str) -> None:
        """Raise UserError if no model is named."""
        if not settings.model:
            raise UserError(f"{where}: name the model of these cells.")

    def cells(self, measure: Measure, *, device: str = "cpu", seeds: int = LOOKS[0]) -> list[Cell]:
        """Return the cells of a measure, in the order of their seeds.

        Args:
            device: where they run.
            seeds: how many seeds are wanted, from 0 on.

        Raises:
            UserError: there is none, or several for one seed that neither `along` nor `across` tells apart.
        """
        settings = measure.settings
        selected = [
            cell for cell in _all_cells(self.suite, device) if cell.model.label == settings.model
            and _has(cell, settings.where)
        ]  # fmt: skip
        if not selected:
            raise UserError(
                f"{measure}: no cell of {self.name} has the model {settings.model} and the settings"
                f" {dict(settings.where)}."
            )
        if len({_place(cell, settings) for cell in selected}) < len(selected):
            raise UserError(
                f"{measure}: {len(selected)} cells match for a seed; add settings to `where` that pick one."
            )
        return [_with_seed(cell, seed) for seed in range(seeds) for cell in selected]

    def work(self, measure: Measure, device: str, seeds: int) -> Work:
        """Return all cells of a measure, without those of the learning-rate search."""
        return Work(tuple(self.cells(measure, device=device, seeds=seeds)), self.suite.search)

    def missing(self, measure: Measure, stored: Stored, device: str, seeds: int) -> Work:
        """Return those of its cells that have no result."""
        cells = self.cells(measure, device=device, seeds=seeds)
        results = stored.find(cells, self.suite.search, device_class(device))
        joined = joining(cells, results)
        settled = {cell.search_key for cell in cells if cell.id in joined}
        to_search = [cell for cell in cells_to_run(cells, results) if cell.search_key not in settled]
        return Work(tuple(to_search), self.suite.search, tuple(joined.values()))

    def evidence(self, measure: Measure, stored: Stored, kind: str, seeds: int) -> Evidence:
        """Return the value of a measure, seed by seed."""
        if not stored.any(self.suite, measure.model, kind):
            return SeedEvidence({}, missing=seeds)
        cells = self.cells(measure, seeds=seeds)
        return seed_evidence(measure.settings, cells, stored.find(cells, self.suite.search, kind))

    def result_ids(self, measure: Measure, stored: Stored, kind: str, seeds: int) -> set[str]:
        """Return the ids of the results of its cells."""
        return {result["id"] for result in self._results(measure, stored, kind, seeds).values()}

    def _results(self, measure: Measure, stored: Stored, kind: str, seeds: int) -> dict[str, CellResult]:
        return stored.find(self.cells(measure, seeds=seeds), self.suite.search, kind)


def _part_of_suite(given: Mapping[str, Any], where: str) -> Suite:
    """Return a suite of linbench with those of its tasks that are asked for."""
    if extra := sorted(given.keys() - {"suite", "tasks"}):
        raise UserError(
            f"{where}: {extra[0]} cannot be given; of a suite that comes with linbench only tasks can be"
            " chosen."
        )
    suite = load(given["suite"])
    tasks_given = [SuiteTask.model_validate(task) for task in given.get("tasks", [])]
    if absent := [part.task for part in tasks_given if not any(_matches(task, part) for task in suite.tasks)]:
        raise UserError(f"{where}: the suite {given['suite']} has no task {absent[0]} with such settings.")
    if not tasks_given:
        return suite
    tasks = tuple(task for task in suite.tasks if any(_matches(task, part) for part in tasks_given))
    return suite.model_copy(update={"tasks": tasks})


def _matches(task: SuiteTask, part: SuiteTask) -> bool:
    return task.task == part.task and part.set.items() <= task.set.items()


def _has(cell: Cell, values: Mapping[str, Any]) -> bool:
    settings = all_settings(cell) if values else {}
    return all(str(settings.get(name)) == str(value) for name, value in values.items())


def _place(cell: Cell, settings: MeasureSettings) -> str:
    """Return what may differ between the cells of one seed."""
    return cell.task_entry.name if settings.across else str(all_settings(cell).get(settings.along))


_SEEDED: dict[tuple[str, int], Cell] = {}


def _with_seed(cell: Cell, seed: int) -> Cell:
    """Return a cell with another seed. They are kept, since measures share cells, whose ids are slow."""
    return _SEEDED.setdefault((cell.id, seed), replace(cell, seed=seed))


_CELLS: dict[tuple[str, str], Sequence[Cell]] = {}


def _all_cells(suite: Suite, device: str) -> Sequence[Cell]:
    """Return every cell of a suite, with one seed.

    They are kept, since sizing models is slow and measures share suites.
    """
    key = (suite.model_dump_json(), device)
    if key not in _CELLS:
        _CELLS[key] = expand(suite, device=device).cells
    return _CELLS[key]
