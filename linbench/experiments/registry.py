"""The tasks and models that can be named: shipped ones, plugins, and those of installed packages."""

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from inspect import isabstract
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from torch import nn

from linbench import models as shipped_models
from linbench import tasks as shipped_tasks
from linbench.common.docstrings import docstring
from linbench.common.errors import UserError, unknown
from linbench.common.scan import data_files
from linbench.common.settings import Settings
from linbench.experiments import systems
from linbench.experiments.loading import (
    ImportedModule,
    describe_error,
    import_path,
    installed_digest,
    is_location,
    load_location,
)
from linbench.experiments.module_mixer import wrap
from linbench.experiments.plugins.spaces import Plugin, digest_of, receive_plugin
from linbench.models.base import Mixer
from linbench.tasks.base import Preset, Task


def card(cls: Any) -> str:
    """Return the description of a task or model: its docstring."""
    return docstring(cls) or "It has no docstring."


def year(cls: Any) -> int | None:
    """Return the year of a model's first arXiv id, or the one that it declares; None if there is neither."""
    named = _ARXIV.search(card(cls))
    declared: int | None = getattr(cls, "year", None)
    return declared or (2000 + int(named[1]) if named else None)


def model_settings(cls: Any) -> list[tuple[str, str, str, str]]:
    """Return (name, type, default, description) of each setting of a model, with published defaults."""
    settings: list[tuple[str, str, str, str]] = cls.Settings.describe()
    return settings


def controlled(cls: Any) -> list[str]:
    """Return the settings of the controlled form, as `name = value`."""
    return [f"{name} = {value}" for name, value in (cls.controlled or {}).items()]


PLUGINS_VARIABLE = "LINBENCH_PLUGINS"
"""The environment variable with folders, separated as in PATH, whose Python files define tasks and models."""

_ARXIV = re.compile(r"(?<![\d.])(\d\d)\d\d\.\d{4,5}(?!\d)")

SHIPPED = "linbench"
"""The `source` of entries that come with linbench."""

_NAMELESS = "it defines no task or model with a `name`"

Kind = Literal["task", "model"]
_BASE: dict[Kind, type] = {"task": Task, "model": Mixer}
_NAMEABLE: dict[Kind, type] = {"task": Task, "model": nn.Module}
_SHIPPED: dict[Kind, ModuleType] = {"task": shipped_tasks, "model": shipped_models}


@dataclass(frozen=True)
class Entry:
    """A task or model that can be used.

    digest: the hash of the source if linbench does not ship it; part of a cell's identity. plugin: the files
    that a user's class was found in, by the name `attribute`.
    """

    name: str
    cls: Any
    source: str
    digest: str | None = None
    plugin: Plugin | None = field(default=None, compare=False, repr=False)
    attribute: str = field(default="", compare=False, repr=False)

    @property
    def shipped(self) -> bool:
        """True if it comes with linbench. The code of any other may do whatever it likes in its process."""
        return self.source == SHIPPED

    @property
    def spelling(self) -> str:
        """The name as its user writes it: of a file `./mine.py:Mine`, where `name` is `mine.py:Mine`."""
        return self.source if self.source.removeprefix("./") == self.name else self.name

    def __reduce__(self) -> Any:
        """Pickle a user's class as the source it was made of, and an installed one as its name."""
        kind: Kind = "task" if issubclass(self.cls, Task) else "model"
        if self.shipped:
            return _shipped_entry, (kind, self.name)
        if self.plugin is not None:
            return _received_entry, (kind, self.name, self.source, self.digest, self.plugin, self.attribute)
        by_location = self.source.removeprefix("./") == self.name
        return _same_entry, (kind, self.source if by_location else self.name, self.digest)


def _received_entry(
    kind: Kind, name: str, source: str, digest: str | None, plugin: Plugin, attribute: str
) -> Entry:
    return Entry(
        name,
        _as_task_or_mixer(kind, getattr(receive_plugin(plugin), attribute)),
        source,
        digest,
        plugin,
        attribute,
    )


def _shipped_entry(kind: Kind, name: str) -> Entry:
    """Find a shipped entry without importing plugins, which may change what the process computes."""
    return _shipped_registry(kind).find(name)


def _same_entry(kind: Kind, name: str, digest: str | None) -> Entry:
    entry = registry(kind).find(name)
    if entry.digest != digest:
        raise UserError(f"{kind} '{name}' has changed since the run began; start the run again.")
    return entry


@dataclass(frozen=True)
class Problem:
    """A name that cannot be used, and the reason. Other names are not affected."""

    name: str
    source: str
    reason: str


@dataclass
class Registry:
    """All tasks, or all models, that can be named."""

    kind: Kind
    entries: dict[str, Entry] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _contested: set[str] = field(default_factory=set)
    _helpers: set[str] = field(default_factory=set)
    """Files that plugins import, which need not define a task or model themselves."""

    def find(self, name: str) -> Entry:
        """Return the entry for a name, `./file.py:Class` or `package.module:Class`.

        Raises UserError: there is none, or it cannot be imported.
        """
        if is_location(name):
            return _entry_at(self.kind, name)
        if name in self.entries:
            return self.entries[name]
        for problem in self.problems:
            if problem.name == name:
                raise UserError(
                    f"{self.kind} '{name}' from {problem.source} cannot be used: {problem.reason}."
                )
        if "/" in name:
            raise UserError(
                f"there is no {self.kind} '{name}'; a path must end in .py or .py:Class, and be in quotes if"
                " it contains + , [ or ]."
            )
        raise unknown(self.kind, name, [*self.entries, *_system_names(self.kind)])

    def _add(self, entry: Entry) -> None:
        """Add an entry. A shipped name wins; if two others have one name, neither can be used by it."""
        name, source = entry.name, entry.source
        present = self.entries.get(name)
        if name in _system_names(self.kind):
            self._note_problem(
                name, source, "linbench ships a system of that name; rename yours, or use its path"
            )
            return
        if present is None and name not in self._contested:
            self.entries[name] = entry
        elif present is None:
            self._note_problem(name, source, "others have the same name; use the path of the one you mean")
        elif present.shipped:
            reason = f"linbench ships a {self.kind} of that name; rename yours, or use its path"
            self._note_problem(name, source, reason)
        else:
            del self.entries[name]
            self._contested.add(name)
            reason = f"{present.source} and {source} have the same name; use the path of the one you mean"
            self._note_problem(name, present.source, reason)
            self._note_problem(name, source, reason)

    def _note_problem(self, name: str, source: str, reason: str) -> None:
        self.problems.append(Problem(name, source, reason))


def shipped(kind: Kind) -> Registry:
    """Return the tasks or models that come with linbench."""
    registry = Registry(kind)
    package = _SHIPPED[kind]
    for module in pkgutil.iter_modules(package.__path__):
        if not module.ispkg:
            _scan(registry, f"{package.__name__}.{module.name}", SHIPPED)
    return registry


_shipped_registry = cache(shipped)


@cache
def registry(kind: Kind) -> Registry:
    """Return all tasks or models: shipped, in plugin folders, and registered by installed packages.

    They are scanned once in a process.
    """
    own = shipped(kind)
    full = Registry(kind, dict(own.entries), list(own.problems))
    for folder in filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)):
        if not Path(folder).is_dir():
            full.problems.append(Problem(folder, PLUGINS_VARIABLE, "the folder does not exist"))
        for path in sorted(Path(folder).glob("*.py")):
            _scan(full, path, str(path))
    full.problems = [
        problem
        for problem in full.problems
        if problem.reason != _NAMELESS or str(Path(problem.source).resolve()) not in full._helpers
    ]
    for point in entry_points(group=f"linbench.{kind}s"):
        source = f"package {point.dist.name}" if point.dist else "an installed package"
        try:
            cls = _as_task_or_mixer(kind, point.load())
            files = installed_digest(sys.modules[point.module], point.dist)
            full._add(
                Entry(_valid_name(point.name), cls, source, digest_of(f"{point.value} {files}".encode()))
            )
        # a failed import of one package must not affect the others
        except (Exception, SystemExit) as error:
            full.problems.append(Problem(point.name, source, describe_error(error)))
    return full


@cache
def _system_names(kind: Kind) -> Collection[str]:
    """Return the names of systems, which stand where a model's name does."""
    return data_files(systems, ".yaml") if kind == "model" else ()


def _scan(target: Registry, place: str | Path, source: str) -> None:
    """Add the tasks or models of a file or module."""
    name = place.stem if isinstance(place, Path) else place.rsplit(".", 1)[1]
    try:
        if isinstance(place, Path):
            imported = import_path(place)
        else:
            imported = ImportedModule(importlib.import_module(place), None)
        entries = _entries(target.kind, imported, source)
        plugin = imported.plugin
        if plugin:
            if not any(_named_classes(imported.module, base) for base in _NAMEABLE.values()):
                raise UserError(_NAMELESS)
            target._helpers |= {file.path for each, file in plugin.files.items() if each != plugin.name}
    except (Exception, SystemExit) as error:  # a failed import must not affect the others
        target.problems.append(Problem(name, source, describe_error(error)))
        return
    for entry in entries:
        target._add(entry)


def _entries(kind: Kind, imported: ImportedModule, source: str) -> list[Entry]:
    entries = []
    for attribute, cls in _named_classes(imported.module, _NAMEABLE[kind]).items():
        name, usable = _valid_name(cls.name), _as_task_or_mixer(kind, cls)
        entries.append(Entry(name, usable, source, imported.digest, imported.plugin, attribute))
    return entries


def _named_classes(module: ModuleType, base: type) -> dict[str, Any]:
    """Return the classes of a base that the module defines and gives a `name`, by their names in it."""
    classes = {name: cls for name, cls in vars(module).items() if isinstance(cls, type)}
    return {
        name: cls
        for name, cls in classes.items()
        if issubclass(cls, base) and cls.__module__ == module.__name__ and "name" in vars(cls)
    }


def _valid_name(name: str) -> str:
    """Return the name. Raises UserError: it cannot be part of a layer pattern."""
    if not name.replace("_", "a").isalnum() or name[0].isdigit():
        raise UserError(
            f"'{name}' cannot be a name; use letters, digits and underscores, and begin with a letter"
        )
    return name


def _as_task_or_mixer(kind: Kind, cls: Any) -> Any:
    """Return the task or mixer; an nn.Module is wrapped into a mixer. Raises UserError: it is neither."""
    is_class = isinstance(cls, type)
    if kind == "model" and is_class and issubclass(cls, nn.Module) and not issubclass(cls, Mixer):
        return wrap(cls)
    if not is_class or not issubclass(cls, _BASE[kind]):
        name = getattr(cls, "__qualname__", type(cls).__name__)
        allowed = "a Mixer or a torch.nn.Module from [B, T, D] to [B, T, D]" if kind == "model" else "a Task"
        raise UserError(f"{name} is not a {kind}; it must be {allowed}")
    _refuse_unfinished(kind, cls)
    return cls


def _refuse_unfinished(kind: Kind, cls: Any) -> None:
    """Raise UserError if a task or mixer lacks settings, an abstract method, or valid presets."""
    settings, presets = getattr(cls, "Settings", None), getattr(cls, "presets", {})
    if not (isinstance(settings, type) and issubclass(settings, Settings)):
        has = "no Settings" if settings is None else f"{settings!r} for its Settings"
        raise UserError(
            f"{kind} {cls.__name__} has {has}; it needs a class Settings derived from"
            " linbench.common.settings.Settings"
        )
    if isabstract(cls):
        raise UserError(
            f"{kind} {cls.__name__} does not define {', '.join(sorted(cls.__abstractmethods__))}, as every"
            f" {_BASE[kind].__name__} must"
        )
    if not isinstance(presets, dict) or not all(isinstance(preset, Preset) for preset in presets.values()):
        raise UserError(
            f"{kind} {cls.__name__} has presets = {presets!r}; it must be a dictionary of"
            " linbench.tasks.base.Preset by name"
        )


def _entry_at(kind: Kind, location: str) -> Entry:
    """Return the entry of a class at a location. The name and the source are part of its cells' identity."""
    cls, attribute, where = load_location(location, _NAMEABLE[kind])
    if not isinstance(cls, type):
        raise UserError(f"{location} is {type(cls).__name__}, not a class.")
    name = location.removeprefix("./")
    return Entry(name, _as_task_or_mixer(kind, cls), location, where.digest, where.plugin, attribute)
