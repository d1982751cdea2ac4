"""Named experiments: a grid of tasks, models, settings and seeds, as cells."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from linbench.common.errors import UserError, unknown
from linbench.common.parsing import parse_lengths, parse_seeds
from linbench.common.settings import Settings
from linbench.common.yaml_files import read_mapping
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings, refuse_rate
from linbench.experiments.pattern import parse_pattern, split_task, tidy
from linbench.experiments.plan import plan
from linbench.experiments.plan_models import STATE_FLOATS, has_heads
from linbench.experiments.plan_tasks import make_task
from linbench.experiments.protocol import suite_block
from linbench.experiments.registry import Kind, registry

_NOT_SUITES = {"protocol"}


class Part(Settings):
    """A task or model of a suite, written by its name alone or as a mapping."""

    set: dict[str, Any] = Field(
        {},
        description=(
            "settings by dotted names: what a model alone is given; a task's own, and what goes with them"
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        named = next(name for name in cls.model_fields if name not in Part.model_fields)
        return {named: value} if isinstance(value, str) else value


class SuiteTask(Part):
    """A task of a suite."""

    task: str = Field(description="a name, or NAME/PRESET")
    form: str | None = Field(None, description="native or controlled, where it is not that of the suite")
    train: tuple[dict[str, Any], ...] = Field(
        (), description="a mixture: for every segment settings of the task by bare names, and its examples"
    )
    test: tuple[dict[str, Any], ...] = Field(
        (), description="for every test settings of the task by bare names; none: the task itself"
    )
    test_lengths: str | None = Field(
        None, description="multiples of the task's length to test at, such as 1x,2x,4x"
    )


class SuiteModel(Part):
    """A model of a suite."""

    model: str = Field(description="a layer pattern")


class Suite(Settings):
    """Every task with every model at every point of the grid, for every seed."""

    about: str = Field(description="what it shows, in a line")
    tasks: tuple[SuiteTask, ...] = Field(min_length=1, description="tasks")
    models: tuple[SuiteModel, ...] = Field(min_length=1, description="models")
    form: str | None = Field(None, description="native or controlled")
    protocol: str | None = Field(None, description="a published protocol by name")
    search: SearchSettings | None = Field(
        None,
        description=(
            "true: each model's learning rate is searched for; a mapping of lowest, rates, extensions, seeds:"
            " in another way than by default"
        ),
    )
    seeds: str = Field("0", description="such as 0,1,2 or 0-4")
    set: dict[str, Any] = Field({}, description="settings of all, by dotted names")
    grid: dict[str, tuple[Any, ...]] = Field(
        {}, description="settings by dotted names, each with the values that it takes in turn"
    )

    @model_validator(mode="before")
    @classmethod
    def _seeds_as_text(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("seeds"), int | list):
            seeds = value["seeds"]
            return {**value, "seeds": ",".join(map(str, seeds)) if isinstance(seeds, list) else str(seeds)}
        return value

    @field_validator("search", mode="before")
    @classmethod
    def _from_defaults(cls, value: Any) -> Any:
        """What is not said stands in `experiments/protocols.yaml`."""
        if isinstance(value, bool):
            value = {} if value else None
        return (
            SearchSettings.parse({**suite_block("search"), **value}, where="suite.search")
            if isinstance(value, Mapping)
            else value
        )

    @model_validator(mode="after")
    def _set_once(self) -> Self:
        if twice := self.set.keys() & self.grid.keys():
            raise ValueError(f"{sorted(twice)[0]} stands both in set and in grid")
        if empty := [name for name, values in self.grid.items() if not values]:
            raise ValueError(f"grid.{empty[0]} has no values")
        return self


class Block(NamedTuple):
    """A task of a suite at a point of its grid, with the cells of every model that can be run there: what may
    be compared."""

    task: SuiteTask
    point: dict[str, Any]
    rows: list[tuple[SuiteModel, list[Cell]]]


class Expansion(NamedTuple):
    """The cells of a suite, each once; and for every name that is not there, why."""

    cells: list[Cell]
    missing: dict[str, str]


def shipped() -> dict[str, str]:
    """The suites that come with linbench: what each shows."""
    return {name: load(name).about for name in sorted(_names())}


def _names() -> set[str]:
    paths = (files("linbench.experiments") / "suites").iterdir()
    return {path.name.removesuffix(".yaml") for path in paths if path.name.endswith(".yaml")} - _NOT_SUITES


def load(name: str) -> Suite:
    """A suite by the path of its file, or one that is shipped by name. Raises UserError: there is none, or
    not one as it should be."""
    own = Path(name).suffix in {".yaml", ".yml"}
    if not own and name not in _names():
        raise unknown("suite", name, _names())
    path = Path(name) if own else files("linbench.experiments") / "suites" / f"{name}.yaml"
    return Suite.parse(read_mapping(path, "suite", Suite.model_fields), where="suite")


def narrowed(
    suite: Suite, *, models: Sequence[str] = (), seeds: str | None = None, form: str | None = None
) -> Suite:
    """The suite with other models than its own, in their order, each with what the suite sets for one of that
    name; with other seeds; in one form."""
    own = [
        [part for part in suite.models if tidy(part.model) == name] or [SuiteModel(model=name)]
        for name in models
    ]
    tasks = tuple(task.model_copy(update={"form": None}) for task in suite.tasks) if form else ()
    values = {
        "tasks": tasks,
        "models": tuple(part for parts in own for part in parts),
        "seeds": seeds,
        "form": form,
    }
    return suite.model_copy(update={name: value for name, value in values.items() if value})


def expand(suite: Suite, *, precision: str | None = None, device: str = "auto") -> Expansion:
    """All cells of a suite, in its order; in a `precision` of your own. Tasks and models that are not
    installed are left out and named, and so are models that do not have the form that is asked for, or no
    heads to be sized by where all are.

    Raises UserError: a setting that is not allowed.
    """
    found, missing = blocks(suite, precision=precision, device=device)
    return Expansion(
        list({cell.id: cell for block in found for _, cells in block.rows for cell in cells}.values()),
        missing,
    )


def blocks(
    suite: Suite, *, precision: str | None = None, device: str = "auto"
) -> tuple[list[Block], dict[str, str]]:
    """As `expand`, task by task and point by point."""
    if suite.search:
        refuse_rate(suite.set, suite.grid, *(part.set for part in (*suite.tasks, *suite.models)))
    missing: dict[str, str] = {}
    models = [
        model
        for model in suite.models
        if _there("model", [term.name for term in parse_pattern(model.model)], missing)
    ]
    tasks = [task for task in suite.tasks if _there("task", [split_task(task.task)[0]], missing)]
    seeds, found = parse_seeds(suite.seeds), list[Block]()
    for task in tasks:
        name, preset = split_task(task.task)
        asked = task.form or suite.form
        form = asked or make_task(name, preset=preset)[2].model.get("form", "native")
        able = [model for model in models if form != "controlled" or _has_controlled(model.model, missing)]
        if any(f"model.{STATE_FLOATS}" in settings for settings in (suite.set, suite.grid, task.set)):
            able = [model for model in able if _can_be_sized(model.model, missing)]
        for point in _points(suite.grid) if able else ():
            cells = plan(
                name,
                [model.model for model in able],
                preset=preset,
                form=asked,
                protocol=suite.protocol,
                seeds=seeds,
                settings={**suite.set, **task.set, **point},
                own=[
                    model.set | ({} if precision is None else {"protocol.precision": precision})
                    for model in able
                ],
                train=task.train,
                test=task.test,
                test_lengths=() if task.test_lengths is None else parse_lengths(task.test_lengths),
                device=device,
            )
            found.append(
                Block(
                    task,
                    point,
                    [(model, cells[i * len(seeds) : (i + 1) * len(seeds)]) for i, model in enumerate(able)],
                )
            )
    return found, missing


def _points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def _there(kind: Kind, names: Sequence[str], missing: dict[str, str]) -> bool:
    for name in names:
        try:
            registry(kind).find(name)
        except UserError as error:
            missing[f"{kind} {name}"] = str(error)
            return False
    return True


def _has_controlled(pattern: str, missing: dict[str, str]) -> bool:
    for term in parse_pattern(pattern):
        if registry("model").find(term.name).cls.controlled is None:
            missing[f"model {pattern}, controlled"] = f"{term.name} has no controlled form."
            return False
    return True


def _can_be_sized(pattern: str, missing: dict[str, str]) -> bool:
    if not has_heads(pattern):
        missing[f"model {pattern}, {STATE_FLOATS}"] = f"{pattern} has no heads to be sized by."
        return False
    return True
