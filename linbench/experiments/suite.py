"""Named experiments: a grid of tasks, models, settings and seeds, as cells."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from linbench.common.errors import UserError, unknown
from linbench.common.parsing import parse_lengths, parse_seeds
from linbench.common.scan import data_files
from linbench.common.settings import Settings, without
from linbench.common.yaml_files import read_mapping
from linbench.experiments import suites
from linbench.experiments.cell import Cell
from linbench.experiments.learning_rates import SearchSettings, refuse_rate
from linbench.experiments.pattern import split_task, tidy
from linbench.experiments.plan import plan
from linbench.experiments.plan_models import has_heads, has_setting, sized_by_state
from linbench.experiments.plan_tasks import make_task
from linbench.experiments.protocol import suite_block
from linbench.experiments.registry import Kind, registry
from linbench.experiments.run_spec import RunSpec
from linbench.experiments.system import parse_layers
from linbench.tasks.base import Task


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
        own_name = next(name for name in cls.model_fields if name not in Part.model_fields)
        return {own_name: value} if isinstance(value, str) else value


PartT = TypeVar("PartT", "Suite", "SuiteTask", "SuiteModel")


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
            "true: each model's learning rate is searched for; a mapping of lowest, rates, extensions, seeds,"
            " refine, ties, halving: in another way than by default"
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
        if not isinstance(value, dict):
            return value
        seeds = value.get("seeds")
        if isinstance(seeds, list):
            return {**value, "seeds": ",".join(map(str, seeds))}
        if isinstance(seeds, int):
            return {**value, "seeds": str(seeds)}
        return value

    @field_validator("search", mode="before")
    @classmethod
    def _with_defaults(cls, value: Any) -> Any:
        """Fill in settings that a suite does not give from `experiments/protocols.yaml`."""
        if isinstance(value, bool):
            value = {} if value else None
        if not isinstance(value, Mapping):
            return value
        return SearchSettings.parse({**suite_block("search"), **value}, where="suite.search")

    @model_validator(mode="after")
    def _set_once(self) -> Self:
        in_both = sorted(self.set.keys() & self.grid.keys())
        if in_both:
            raise ValueError(f"{in_both[0]} is given in set and in grid; keep one of the two")
        for name, values in self.grid.items():
            if not values:
                raise ValueError(f"grid.{name} has no values; give at least one")
        return self


class SuiteBlock(NamedTuple):
    """One task of a suite at one point of its grid: the unit within which models are compared.

    rows: each model that can run there, with its cells.
    """

    task: SuiteTask
    point: dict[str, Any]
    rows: list[tuple[SuiteModel, list[Cell]]]


class Expansion(NamedTuple):
    """The cells of a suite, each once, and the reason for every task or model that is left out."""

    cells: list[Cell]
    missing: dict[str, str]


def shipped() -> dict[str, str]:
    """Return the names of the shipped suites, each with the line that says what it shows."""
    return {name: load(name).about for name in data_files(suites, ".yaml")}


def load(name: str) -> Suite:
    """Read a suite: a shipped one by its name, any other by the path of its YAML file.

    Raises UserError: there is no such suite, or its file is not a valid suite.
    """
    path = Path(name)
    if path.suffix not in {".yaml", ".yml"}:
        shipped_files = data_files(suites, ".yaml")
        if name not in shipped_files:
            raise unknown("suite", name, shipped_files)
        path = shipped_files[name]
    return Suite.parse(read_mapping(path, "suite", Suite.model_fields), where="suite")


def narrow(
    suite: Suite,
    *,
    models: Sequence[str] = (),
    seeds: str | None = None,
    form: str | None = None,
    protocol: str | None = None,
    tokens: int | None = None,
) -> Suite:
    """Return the suite with other models, other seeds, another form or another training.

    Args:
        suite: the suite to start from.
        models: models in place of the suite's, in this order. A model of the suite keeps its settings.
        seeds: seeds in place of the suite's.
        form: the form of all tasks.
        protocol: a published protocol in place of the suite's.
        tokens: a budget in place of the suite's, and of all further rungs.
    """
    changes: dict[str, Any] = {}
    if models:
        suite = keep_models(suite, [part for name in models for part in _entries_of(suite, name)])
    if seeds is not None:
        changes["seeds"] = seeds
    if form is not None:
        changes["form"] = form
        changes["tasks"] = tuple(task.model_copy(update={"form": None}) for task in suite.tasks)
    if protocol is not None:
        changes["protocol"] = protocol
    narrowed = suite.model_copy(update=changes)
    return narrowed if tokens is None else _with_budget(narrowed, tokens)


def keep_models(suite: Suite, models: Sequence[SuiteModel]) -> Suite:
    """Return the suite with these models, without shared settings that only models have which are left out.

    A model that is not installed has no settings that could be asked for.
    """

    def any_has(each: Sequence[SuiteModel], setting: str) -> bool:
        return any(_model_is_installed(one, {}) and has_setting(one.model, setting) for one in each)

    def is_for_others(name: str) -> bool:
        kind, _, setting = name.partition(".")
        return kind == "model" and any_has(suite.models, setting) and not any_has(models, setting)

    def kept(part: PartT) -> PartT:
        return part.model_copy(update={"set": without(part.set, [*filter(is_for_others, part.set)])})

    return kept(suite).model_copy(update={"models": tuple(models), "tasks": tuple(map(kept, suite.tasks))})


def _with_budget(suite: Suite, tokens: int) -> Suite:
    """Return the suite with one budget for all its cells."""
    budget = {"protocol.tokens": tokens, "protocol.rungs": 1, "protocol.doublings": 0}

    def without_budget(part: PartT) -> PartT:
        return part.model_copy(update={"set": without(part.set, budget)})

    return suite.model_copy(
        update={
            "set": {**suite.set, **budget},
            "grid": without(suite.grid, budget),
            "tasks": tuple(map(without_budget, suite.tasks)),
            "models": tuple(map(without_budget, suite.models)),
        }
    )


def _entries_of(suite: Suite, model: str) -> list[SuiteModel]:
    entries = [entry for entry in suite.models if tidy(entry.model) == model]
    return entries or [SuiteModel(model=model)]


def expand(suite: Suite, *, precision: str | None = None, device: str = "auto") -> Expansion:
    """Return all cells of a suite, in its order.

    Left out, with the reason, are tasks and models that are not installed, models that lack the form that is
    asked for, and models without heads where all are sized by their state.

    Args:
        suite: the suite.
        precision: a precision in place of the suite's.
        device: auto, cpu, cuda or cuda:N.

    Raises UserError: a setting that is not allowed.
    """
    suite_blocks, missing = blocks(suite, precision=precision, device=device)
    cells: dict[str, Cell] = {}
    for block in suite_blocks:
        for _, of_model in block.rows:
            cells.update((cell.id, cell) for cell in of_model)
    return Expansion(list(cells.values()), missing)


def blocks(
    suite: Suite, *, precision: str | None = None, device: str = "auto"
) -> tuple[list[SuiteBlock], dict[str, str]]:
    """Return what `expand` does, task by task and point by point of the grid."""
    if suite.search:
        refuse_rate(suite.set, suite.grid, *(part.set for part in (*suite.tasks, *suite.models)))
    missing: dict[str, str] = {}
    models = [model for model in suite.models if _model_is_installed(model, missing)]
    tasks = [task for task in suite.tasks if _task_is_installed(task, missing)]
    suite_blocks = []
    for task in tasks:
        able = _able_models(suite, task, models, missing)
        for point in _points(suite.grid) if able else ():
            run = _run_spec(suite, task, point, able, precision=precision, device=device)
            cells = iter(plan(run))
            rows = [(model, [next(cells) for _ in run.seeds]) for model in able]
            suite_blocks.append(SuiteBlock(task, point, rows))
    return suite_blocks, missing


def tasks_of(suite: Suite) -> Iterator[Task]:
    """Yield each installed task of a suite at every point of the grid; no model is planned."""
    for task in suite.tasks:
        if _task_is_installed(task, {}):
            for point in _points(suite.grid):
                run = _run_spec(suite, task, point, (), precision=None, device="cpu")
                yield make_task(run.task, preset=run.preset, settings=run.settings)[0]


def _run_spec(
    suite: Suite,
    task: SuiteTask,
    point: Mapping[str, Any],
    models: Sequence[SuiteModel],
    *,
    precision: str | None,
    device: str,
) -> RunSpec:
    """Return the run of a task at a point of the grid."""
    name, preset = split_task(task.task)
    precision_setting = {} if precision is None else {"protocol.precision": precision}
    return RunSpec(
        task=name,
        models=[model.model for model in models],
        preset=preset,
        form=task.form or suite.form,
        protocol=suite.protocol,
        seeds=parse_seeds(suite.seeds),
        settings={**suite.set, **task.set, **point},
        model_settings=[{**model.set, **precision_setting} for model in models],
        train=task.train,
        test=task.test,
        test_lengths=() if task.test_lengths is None else parse_lengths(task.test_lengths),
        device=device,
    )


def _points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def _model_is_installed(model: SuiteModel, missing: dict[str, str]) -> bool:
    return all(_is_installed("model", term.name, missing) for term in parse_layers(model.model))


def _task_is_installed(task: SuiteTask, missing: dict[str, str]) -> bool:
    return _is_installed("task", split_task(task.task)[0], missing)


def _is_installed(kind: Kind, name: str, missing: dict[str, str]) -> bool:
    try:
        registry(kind).find(name)
    except UserError as error:
        missing[f"{kind} {name}"] = str(error)
        return False
    return True


def _able_models(
    suite: Suite, task: SuiteTask, models: Sequence[SuiteModel], missing: dict[str, str]
) -> list[SuiteModel]:
    """Return the models that have the form and the size that are asked for on this task."""
    name, preset = split_task(task.task)
    form = task.form or suite.form or make_task(name, preset=preset)[2].model.get("form", "native")
    able = list(models)
    if form == "controlled":
        able = [model for model in able if _has_controlled_form(model.model, missing)]
    size = sized_by_state(suite.set, suite.grid, task.set)
    if size:
        able = [model for model in able if _can_be_sized(model.model, size, missing)]
    return able


def _has_controlled_form(pattern: str, missing: dict[str, str]) -> bool:
    for term in parse_layers(pattern):
        mixer = registry("model").find(term.name).cls
        if mixer.controlled is None:
            declare = "; its class can declare one (docs/your-layer.md)" if mixer.is_plain_module else ""
            missing[f"model {pattern}, controlled"] = f"{term.name} has no controlled form{declare}."
            return False
    return True


def _can_be_sized(pattern: str, size: str, missing: dict[str, str]) -> bool:
    if not has_heads(pattern):
        missing[f"model {pattern}, {size}"] = f"{pattern} has no heads, so its state has no size to choose."
        return False
    return True
