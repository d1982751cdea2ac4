"""What a claim is: a sentence of the literature, and a rule that says which measures would bear it out and
which would refute it.

Claims stand in YAML files beside this one, a file for each section. Thresholds are those of the page that the
claims were gathered on. `docs/claims.md` says which results are older than the rules.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from pydantic import Field

from linbench.claims.rule import Rule
from linbench.claims.schema import LEAST_SEEDS, TIERS, ClaimText, Measure
from linbench.claims.timings import TRAINING, Bench
from linbench.claims.untrained import Table
from linbench.common.errors import UserError, unknown
from linbench.common.parsing import parse_seeds
from linbench.common.settings import Settings
from linbench.common.yaml_files import read_mapping
from linbench.experiments.suite import Suite, SuiteModel, SuiteTask, load


class Grid(NamedTuple):
    """Cells of a section: a suite of its own or part of a shipped one, with the models that measures of the
    section are of."""

    suite: Suite
    of: str
    """The name of the shipped suite."""


class Places(NamedTuple):
    """Where the measures of a section may look, by name."""

    grids: Mapping[str, Grid]
    tables: Mapping[str, Table]
    benches: Mapping[str, Bench]


@dataclass(frozen=True)
class Claim:
    """A claim with its rules read."""

    id: str
    section: str
    text: ClaimText
    measures: Mapping[str, Measure]
    grids: Mapping[str, Grid]
    tables: Mapping[str, Table]
    benches: Mapping[str, Bench]
    supported: Rule | None
    refuted: Rule | None

    @property
    def number(self) -> int:
        """Of its id."""
        return int(self.id[1:])

    @property
    def deciding(self) -> list[str]:
        """The measures that its rules name; others are shown beside them."""
        return list(
            dict.fromkeys(name for rule in (self.supported, self.refuted) if rule for name in rule.names)
        )

    @property
    def premises(self) -> list[Rule]:
        """What both its rules ask for, such as that a model has learned what it was trained for."""
        asked = {part.text for part in self.refuted.parts} if self.refuted else set[str]()
        return [part for part in self.supported.parts if part.text in asked] if self.supported else []

    @property
    def trained(self) -> list[str]:
        """Those of them that are of cells."""
        return [name for name in self.deciding if self.measures[name].cells in self.grids]

    @property
    def timed(self) -> list[str]:
        """Those of them that are of layers timed."""
        return [name for name in self.deciding if self.measures[name].cells in self.benches]

    @property
    def cost(self) -> str:
        """Its tiers in words."""
        words = " or ".join(dict.fromkeys((TIERS[self.tiers[0]], TIERS[self.tiers[-1]])))
        return f"tier {self.text.tier}: {words}" + (
            " a model on a GPU" if self.tiers[0] in ("T1", "T2", "T3") else ""
        )

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers that it lies in."""
        first, _, last = self.text.tier.partition("-")
        names = list(TIERS)
        return tuple(names[names.index(first) : names.index(last or first) + 1])


@cache
def claims() -> dict[str, Claim]:
    """All claims by their ids, in the order of these. Raises UserError: a file is not as it should be, in one
    sentence about the first thing that is wrong."""
    found: dict[str, Claim] = {}
    for path in sorted((files("linbench") / "claims").iterdir(), key=lambda path: path.name):
        if path.name.endswith(".yaml"):
            for claim in section(read_mapping(path, "claims", Section.model_fields), where=path.name):
                if claim.id in found:
                    raise UserError(f"{path.name}: {claim.id} is there twice.")
                found[claim.id] = claim
    return dict(sorted(found.items(), key=lambda item: item[1].number))


def find(name: str) -> Claim:
    """A claim by its id, such as C17 or c17. Raises UserError: there is none."""
    if name.upper() not in claims():
        raise unknown("claim", name, claims())
    return claims()[name.upper()]


class Section(Settings):
    """A file."""

    title: str
    cells: dict[str, dict[str, Any]] = Field(
        {}, description="cells by names of their own: as a suite, without models, or part of a shipped one"
    )
    untrained: dict[str, dict[str, Any]] = Field({}, description="tables by names of their own")
    timed: dict[str, dict[str, Any]] = Field(
        {}, description="shapes that layers are timed at, by names of their own"
    )
    claims: dict[str, dict[str, Any]] = Field(description="by their ids")


def section(values: Mapping[str, Any], *, where: str) -> list[Claim]:
    """The claims of a file. Raises UserError: as `claims`."""
    parsed = Section.parse(values, where=where)
    grids = {name: _grid(given, f"{where}: {name}") for name, given in parsed.cells.items()}
    tables = {name: Table.parse(given, where=f"{where}: {name}") for name, given in parsed.untrained.items()}
    benches = {name: Bench.parse(given, where=f"{where}: {name}") for name, given in parsed.timed.items()}
    if twice := sorted((grids.keys() & (tables.keys() | benches.keys())) | (tables.keys() & benches.keys())):
        raise UserError(
            f"{where}: {twice[0]} names two of cells, tables of what needs no training, and layers timed."
        )
    found = [
        _claim(name, given, parsed.title, Places(grids, tables, benches))
        for name, given in parsed.claims.items()
    ]
    whole = {name: _with_models(grid, found, name, f"{where}: {name}") for name, grid in grids.items()}
    return [replace(claim, grids=whole) for claim in found]


def _grid(given: Mapping[str, Any], where: str) -> Grid:
    if "suite" not in given:
        suite = Suite.parse({"about": where, "models": ["attention"], **given}, where=where)
    else:
        suite, name = load(given["suite"]), given["suite"]
        if extra := sorted(given.keys() - {"suite", "tasks"}):
            raise UserError(
                f"{where}: of a shipped suite nothing can be changed, but tasks left out; {extra[0]} cannot"
                " be given."
            )
        wanted = [SuiteTask.model_validate(task) for task in given.get("tasks", [])]
        tasks = tuple(task for task in suite.tasks if not wanted or any(_is(task, part) for part in wanted))
        if unmet := [part.task for part in wanted if not any(_is(task, part) for task in suite.tasks)]:
            raise UserError(f"{where}: the suite {name} has no task {unmet[0]} with such settings.")
        suite = suite.model_copy(update={"tasks": tasks})
    if len(parse_seeds(suite.seeds)) < LEAST_SEEDS:
        raise UserError(f"{where}: seeds are {suite.seeds}; a verdict needs at least {LEAST_SEEDS}.")
    return Grid(suite, given.get("suite", ""))


def _with_models(grid: Grid, claims: Sequence[Claim], name: str, where: str) -> Grid:
    """The grid with the models of all measures that are of it."""
    named = dict.fromkeys(
        measure.model for claim in claims for measure in claim.measures.values() if measure.cells == name
    )
    known = (
        {model.model: model for model in grid.suite.models}
        if grid.of
        else {model: SuiteModel(model=model) for model in named}
    )
    if unknown_models := [model for model in named if model not in known]:
        raise UserError(f"{where}: the suite {grid.of} has no model {unknown_models[0]}.")
    return grid._replace(
        suite=grid.suite.model_copy(update={"models": tuple(known[model] for model in named)})
    )


def _is(task: SuiteTask, wanted: SuiteTask) -> bool:
    return task.task == wanted.task and wanted.set.items() <= task.set.items()


def _claim(name: str, given: Mapping[str, Any], title: str, places: Places) -> Claim:
    if not re.fullmatch("C[1-9][0-9]*", name):
        raise UserError(f"{title}: claims are named C1, C2, ..., not {name}.")
    text = ClaimText.parse(given, where=name)
    measures = {own: _measure(name, own, value, text.measure, places) for own, value in text.measures.items()}
    if not bool(measures) == bool(text.supported) == bool(text.refuted):
        raise UserError(f"{name}: measures and both rules, supported and refuted, go together.")
    rules = {
        which: Rule.of(rule, measures, where=f"{name}.{which}")
        for which in ("supported", "refuted")
        if (rule := getattr(text, which))
    }
    return Claim(name, title, text, measures, *places, rules.get("supported"), rules.get("refuted"))


def _measure(
    claim: str, name: str, given: str | Mapping[str, Any], shared: Mapping[str, Any], among: Places
) -> Measure:
    where = f"{claim}.{name}"
    measure = Measure.parse(
        {**shared, **({"model": given} if isinstance(given, str) else given)}, where=where
    )
    places = [name for kind in among for name in kind]
    if not measure.cells and len(places) == 1:
        measure = measure.model_copy(update={"cells": places[0]})
    if measure.cells not in places:
        raise unknown(f"cells of {where}", measure.cells, places)
    if bool(measure.model) == (measure.cells in among.tables):
        raise UserError(
            f"{where}:"
            f" {'a table has no model' if measure.model else 'cells are of a model, which is to be named'}."
        )
    if bench := among.benches.get(measure.cells):
        _check_timed(measure, bench, where)
    if bool(measure.along) != (measure.reaching is not None):
        raise UserError(f"{where}: along and reaching go together.")
    if measure.along and measure.across:
        raise UserError(f"{where}: along and across do not go together.")
    return measure


def _check_timed(measure: Measure, bench: Bench, where: str) -> None:
    """Raises UserError: it looks at something that such cases do not tell."""
    if measure.of != TRAINING:
        raise UserError(f"{where}.of = {measure.of}: of layers timed there are {TRAINING} alone.")
    if set(measure.where) != {"length"} or measure.where["length"] not in bench.lengths:
        raise UserError(
            f"{where}.where says at which length, one of {', '.join(map(str, bench.lengths))}, and nothing"
            " else."
        )
