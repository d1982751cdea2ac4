"""What a model says of itself: its docstring and its settings."""

import importlib
import os
import pkgutil
import sys
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
from linbench.common.settings import Settings
from linbench.experiments.loading import (
    Brought,
    import_path,
    installed_digest,
    is_location,
    load_location,
    theirs,
)
from linbench.experiments.module_mixer import wrap
from linbench.experiments.plugins.spaces import Plugin, arrive, digest_of
from linbench.models.base import Mixer
from linbench.tasks.base import Preset, Task


def card(cls: Any) -> str:
    """Of a task or model: its docstring."""
    return docstring(cls) or "It has no docstring."


def model_settings(cls: Any) -> list[tuple[str, str, str, str]]:
    """(name, type, default, description) of each, with published defaults."""
    found: list[tuple[str, str, str, str]] = cls.Settings.describe()
    return found


def controlled(cls: Any) -> list[str]:
    """What the controlled form sets, as `name = value`."""
    return [f"{name} = {value}" for name, value in (cls.controlled or {}).items()]


PLUGINS_VARIABLE = "LINBENCH_PLUGINS"
"""Folders (separated as in PATH) whose every Python file may bring tasks and models."""

SHIPPED = "linbench"
"""The source of what linbench brings itself."""

_NAMELESS = "it defines no task or model with a `name`"

Kind = Literal["task", "model"]
_BASE: dict[Kind, type] = {"task": Task, "model": Mixer}
_NAMED: dict[Kind, type] = {"task": Task, "model": nn.Module}
_SHIPPED: dict[Kind, ModuleType] = {"task": shipped_tasks, "model": shipped_models}


@dataclass(frozen=True)
class Entry:
    """A task or model that can be used. `digest`: of the source of what linbench does not ship, part of a
    cell's identity."""

    name: str
    cls: Any
    source: str
    digest: str | None = None
    plugin: Plugin | None = field(default=None, compare=False, repr=False)
    """The module that a class of a user's was found in, by the name `attribute`."""
    attribute: str = field(default="", compare=False, repr=False)

    def __reduce__(self) -> Any:
        """To another process goes a user's class as the source that it was made of; what is installed is
        found there again, by its name."""
        kind: Kind = "task" if issubclass(self.cls, Task) else "model"
        if self.source == SHIPPED:
            return _shipped_again, (kind, self.name)
        if self.plugin is not None:
            return _arrived, (kind, self.name, self.source, self.digest, self.plugin, self.attribute)
        named = self.source if self.source.removeprefix("./") == self.name else self.name  # by path or module
        return _found_again, ("task" if issubclass(self.cls, Task) else "model", named, self.digest)


def _arrived(kind: Kind, name: str, source: str, digest: str | None, plugin: Plugin, attribute: str) -> Entry:
    return Entry(name, _usable(kind, getattr(arrive(plugin), attribute)), source, digest, plugin, attribute)


def _shipped_again(kind: Kind, name: str) -> Entry:
    """Without a look at plugins, whose import may change what else is computed in a process."""
    return _ours(kind).find(name)


def _found_again(kind: Kind, name: str, digest: str | None) -> Entry:
    entry = registry(kind).find(name)
    if entry.digest != digest:
        raise UserError(f"{kind} '{name}' is no longer what it was when the run began; start the run again.")
    return entry


@dataclass(frozen=True)
class Problem:
    """A name that cannot be used, and why. It hurts nobody else."""

    name: str
    source: str
    reason: str


@dataclass
class Registry:
    """Everything of one kind that can be named."""

    kind: Kind
    entries: dict[str, Entry] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _contested: set[str] = field(default_factory=set)
    _helpers: set[str] = field(default_factory=set)
    """Files that plugins import: these need bring nothing themselves."""

    def find(self, name: str) -> Entry:
        """The entry a user means by a name, `./file.py:Class` or `package.module:Class`.

        Raises UserError: nothing of that name, or it could not be imported.
        """
        if is_location(name):
            return _located(self.kind, name)
        if name in self.entries:
            return self.entries[name]
        for problem in self.problems:
            if problem.name == name:
                raise UserError(
                    f"{self.kind} '{name}' from {problem.source} cannot be used: {problem.reason}."
                )
        if "/" in name:
            raise UserError(
                f"there is no {self.kind} '{name}'; a path ends in .py, or in .py:Class, and one that holds +"
                " , [ or ] stands in quotes."
            )
        raise unknown(self.kind, name, self.entries)

    def _add(self, entry: Entry) -> None:
        """Shipped names stand; of two others that claim one name neither is used, since either could be
        meant."""
        taken = self.entries.get(entry.name)
        if taken is None and entry.name not in self._contested:
            self.entries[entry.name] = entry
        elif taken is None:
            self.problems.append(
                Problem(
                    entry.name, entry.source, "others claim the name too; name the one you mean by its path"
                )
            )
        elif taken.source == SHIPPED:
            self.problems.append(
                Problem(
                    entry.name,
                    entry.source,
                    f"linbench ships a {self.kind} of that name; rename yours or name it by its path",
                )
            )
        else:
            del self.entries[entry.name]
            self._contested.add(entry.name)
            reason = (
                f"both {taken.source} and {entry.source} claim the name; name the one you mean by its path"
            )
            self.problems += [Problem(entry.name, source, reason) for source in (taken.source, entry.source)]


def shipped(kind: Kind) -> Registry:
    """Return all that linbench brings itself."""
    found = Registry(kind)
    package = _SHIPPED[kind]
    for module in pkgutil.iter_modules(package.__path__):
        if not module.ispkg:
            _scan(found, f"{package.__name__}.{module.name}", SHIPPED)
    return found


_ours = cache(shipped)


@cache
def registry(kind: Kind) -> Registry:
    """All that is shipped, in plugin folders and registered by installed packages. Scanned once per
    process."""
    ours = shipped(kind)
    found = Registry(kind, dict(ours.entries), list(ours.problems))
    for folder in filter(None, os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep)):
        if not Path(folder).is_dir():
            found.problems.append(Problem(folder, PLUGINS_VARIABLE, "there is no such folder"))
        for path in sorted(Path(folder).glob("*.py")):
            _scan(found, path, str(path))
    found.problems = [
        each
        for each in found.problems
        if each.reason != _NAMELESS or str(Path(each.source).resolve()) not in found._helpers
    ]
    for point in entry_points(group=f"linbench.{kind}s"):
        source = f"package {point.dist.name}" if point.dist else "an installed package"
        try:
            cls = _usable(kind, point.load())
            files = installed_digest(sys.modules[point.module], point.dist)
            found._add(Entry(_checked(point.name), cls, source, digest_of(f"{point.value} {files}".encode())))
        # whatever a stranger's import raises must not hurt the others
        except (Exception, SystemExit) as error:
            found.problems.append(Problem(point.name, source, theirs(error)))
    return found


def _scan(found: Registry, where: str | Path, source: str) -> None:
    name = where.stem if isinstance(where, Path) else where.rsplit(".", 1)[1]
    try:
        brought = (
            import_path(where) if isinstance(where, Path) else Brought(importlib.import_module(where), None)
        )
        entries = [
            Entry(
                _checked(cls.name),
                _usable(found.kind, cls),
                source,
                brought.digest,
                brought.plugin,
                attribute,
            )
            for attribute, cls in _named(brought.module, _NAMED[found.kind]).items()
        ]
        brings = not brought.plugin or any(_named(brought.module, base) for base in _NAMED.values())
        if brought.plugin and brings:
            found._helpers |= {
                file.path for each, file in brought.plugin.files.items() if each != brought.plugin.name
            }
        if not brings:
            raise UserError(_NAMELESS)
    except (Exception, SystemExit) as error:  # as above
        found.problems.append(Problem(name, source, theirs(error)))
        return
    for entry in entries:
        found._add(entry)


def _named(module: ModuleType, base: type) -> dict[str, Any]:
    """The classes of that base which the module itself defines and gives a `name`, by their names in it."""
    every = {
        name: cls for name, cls in vars(module).items() if isinstance(cls, type) and issubclass(cls, base)
    }
    return {
        name: cls for name, cls in every.items() if cls.__module__ == module.__name__ and "name" in vars(cls)
    }


def _checked(name: str) -> str:
    """A name that a pattern can hold. Raises UserError: it cannot."""
    if not name.replace("_", "a").isalnum() or name[0].isdigit():
        raise UserError(f"'{name}' cannot be a name: letters, digits and underscores, a letter first")
    return name


def _usable(kind: Kind, cls: Any) -> Any:
    """The task or mixer that a class is, or is made into. Raises UserError: it is neither."""
    if (
        kind == "model"
        and isinstance(cls, type)
        and issubclass(cls, nn.Module)
        and not issubclass(cls, Mixer)
    ):
        return wrap(cls)
    if not (isinstance(cls, type) and issubclass(cls, _BASE[kind])):
        allowed = (
            "a Mixer or any torch.nn.Module from [B, T, D] to [B, T, D]" if kind == "model" else "a Task"
        )
        raise UserError(
            f"{getattr(cls, '__qualname__', type(cls).__name__)} is no {kind}: {allowed} would be"
        )
    _refuse_unfinished(kind, cls)
    return cls


def _refuse_unfinished(kind: Kind, cls: Any) -> None:
    """Raise UserError where a task or a Mixer lacks what each must have: its settings, what its base leaves
    open, presets that are presets."""
    settings, presets = getattr(cls, "Settings", None), getattr(cls, "presets", {})
    if not (isinstance(settings, type) and issubclass(settings, Settings)):
        has = "no Settings" if settings is None else f"{settings!r} for its Settings"
        raise UserError(
            f"{kind} {cls.__name__} has {has}; it needs a class Settings that extends"
            " linbench.common.settings.Settings"
        )
    if isabstract(cls):
        raise UserError(
            f"{kind} {cls.__name__} does not define {', '.join(sorted(cls.__abstractmethods__))}, as every"
            f" {_BASE[kind].__name__} must"
        )
    if not isinstance(presets, dict) or not all(isinstance(preset, Preset) for preset in presets.values()):
        raise UserError(
            f"{kind} {cls.__name__} has presets = {presets!r}; each must be a linbench.tasks.base.Preset by"
            " its name"
        )


def _located(kind: Kind, location: str) -> Entry:
    """A class named by path or module; its source becomes part of the identity of its cells, as does the
    name."""
    cls, attribute, where = load_location(location, _NAMED[kind])
    if not isinstance(cls, type):
        raise UserError(f"{location} is {type(cls).__name__}, not a class.")
    return Entry(
        location.removeprefix("./"), _usable(kind, cls), location, where.digest, where.plugin, attribute
    )
