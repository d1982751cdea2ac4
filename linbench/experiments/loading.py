"""Importing what a user brings, and telling their errors from ours."""

import importlib
import json
import os
import re
import sys
import traceback
from functools import cache
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from linbench.common.errors import PluginError, UserError, message_of, unknown
from linbench.experiments.plugins.files import SHARED, File, find
from linbench.experiments.plugins.imports import candidates, is_relative
from linbench.experiments.plugins.spaces import PREFIX, Plugin, digest_of, load

_OURS = Path(__file__).parents[1]


def is_location(name: str) -> bool:
    """Whether a name is `file.py`, `file.py:Class` or `package.module:Class` rather than a registered one."""
    return ":" in name or name.endswith(".py")


class Brought(NamedTuple):
    """A module that a user named. digest: of the source that decides what it computes. plugin: None where
    Python itself imported it, as what is installed."""

    module: ModuleType
    digest: str | None
    plugin: Plugin | None = None


class Located(NamedTuple):
    """A class that a user named by its place: the module, and the name that it has there."""

    cls: Any
    name: str
    where: Brought


def import_path(path: Path) -> Brought:
    """Import a file as it is now. Its imports are looked for beside it, in the packages that it is in, and in
    the current folder where it lies below that."""
    file = path.resolve()
    content, folder, parts = file.read_bytes(), file.parent, [file.stem.replace(".", "_")]
    folders, files = [folder], dict[str, File]()
    if is_relative(content) and (folder / "__init__.py").is_file():
        parts = [] if file.stem == "__init__" else parts
        while (folder / "__init__.py").is_file():
            parts, folder = [folder.name, *parts], folder.parent
        folders = [folder, file.parent]
        files = _packages(".".join(parts), folders)
    here = Path.cwd().resolve()
    if file.is_relative_to(here) and here not in folders:
        folders.append(here)
    name = ".".join(parts)
    return _brought(
        load(
            name,
            {**files, name: File(str(file), content, name in files and file.stem == "__init__")},
            folders,
        )
    )


def import_name(name: str) -> Brought:
    """Import a module by its name: below the current folder or in a folder on Python's path as a file of the
    user's is, what is installed as Python does.

    Raises UserError: there is none.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(f"there is no module '{name}': a module's name is words with dots between.")
    top = name.partition(".")[0]
    folders = [] if top in SHARED else _users_folders(top)
    if not folders:
        module = importlib.import_module(name)
        return Brought(module, installed_digest(module))
    files = _packages(f"{name}.", folders)
    if name not in files:
        raise UserError(f"there is no module {name} in {folders[0]}.")
    return _brought(load(name, files, folders))


def _brought(plugin: Plugin) -> Brought:
    return Brought(plugin.module, plugin.digest, plugin)


def _packages(name: str, folders: list[Path]) -> dict[str, File]:
    """The files of the packages that a module is in."""
    above = candidates(name.rpartition(".")[0])
    return {each: file for each in above if (file := find(each, folders)) is not None}


def _users_folders(top: str) -> list[Path]:
    """The folder of a user's that has a module of that name; none: it is installed, or not there."""
    here = Path.cwd().resolve()
    if find(top, [here]) is not None:
        return [here]
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return []
    places = [spec.origin, *(spec.submodule_search_locations or [])] if spec else []
    place = next((Path(place) for place in places if place and Path(place).exists()), None)
    if spec is None or place is None or _INSTALLED & {*place.parts}:
        return []
    folder = (
        place.parent if spec.submodule_search_locations is None or place.is_dir() else place.parent.parent
    )
    return [folder] if find(top, [folder]) is not None else []


_INSTALLED = {"site-packages", "dist-packages"}


def load_location(location: str, base: type) -> Located:
    """The class at `./file.py:Class` or `package.module:Class`; the class may be left out where there is only
    one of that base.

    Raises UserError: no such file, module or class. PluginError: it failed while being imported.
    """
    where, _, name = location.rpartition(":") if ":" in location else (location, "", "")
    try:
        if where.endswith(".py"):
            if not Path(where).is_file():
                raise UserError(f"there is no file {where} in {Path.cwd()}.")
            found = import_path(Path(where))
        else:
            found = import_name(where)
    except UserError:
        raise
    except ModuleNotFoundError as missing:
        if missing.name and (where == missing.name or where.startswith(missing.name + ".")):
            raise UserError(f"there is no module {where}: {missing}.") from None
        raise PluginError(f"{location} could not be imported: {theirs(missing)}.") from missing
    except (Exception, SystemExit) as error:
        raise PluginError(f"{location} could not be imported: {theirs(error)}.") from error
    own, others = _classes(found.module, base)
    if not name:
        if len(own or others) == 1:
            name, cls = next(iter((own or others).items()))
            return Located(cls, name, found)
        number = len(own) or "no"
        raise UserError(
            f"{location} has {number} classes that could be meant; name one as {location}:Class. Allowed:"
            f" {_listed([*own, *others])}."
        )
    if not hasattr(found.module, name):
        raise _no_class(where, name, [*own, *others])
    cls = getattr(found.module, name)
    # of which no more counts than the file that defines the class
    if found.module.__name__.partition(".")[0] in SHARED:
        found = found._replace(
            digest=installed_digest(sys.modules.get(getattr(cls, "__module__", None) or "", found.module))
        )
    return Located(cls, name, found)


def _classes(module: ModuleType, base: type) -> tuple[dict[str, type], dict[str, type]]:
    """The classes of that base that a module defines, and those that it imports from files of the same user,
    by their names there."""
    every = {
        name: cls for name, cls in vars(module).items() if isinstance(cls, type) and issubclass(cls, base)
    }
    own = {name: cls for name, cls in every.items() if cls.__module__ == module.__name__}
    top = module.__name__.partition(".")[0]
    return own, {
        name: cls
        for name, cls in every.items()
        if name not in own and cls.__module__.partition(".")[0] == top
    }


def _no_class(where: str, name: str, classes: list[str]) -> UserError:
    return (
        unknown(f"class in {where}", name, classes)
        if classes
        else UserError(f"unknown class in {where} '{name}'; it has none that could be meant.")
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def installed_digest(module: ModuleType, distribution: Distribution | None = None) -> str | None:
    """SHA-256 of the Python files of the package that an installed module is in, and of its distribution's,
    as they were when first asked for; of a module of Python's, torch's or ours of its file alone. None where
    there is no file."""
    if (path := getattr(module, "__file__", None)) is None:
        return None
    top = module.__name__.partition(".")[0]
    folders = () if top in SHARED else tuple(getattr(sys.modules.get(top), "__path__", ()))
    others = (
        []
        if distribution is None
        else [Path(str(each.locate())) for each in distribution.files or () if each.suffix == ".py"]
    )
    return _digest_of_all(path, folders, tuple(others))


@cache
def _digest_of_all(path: str, folders: tuple[str, ...], others: tuple[Path, ...]) -> str:
    root = Path(folders[0]) if folders else Path(path).parent
    every = {Path(path), *others, *(file for folder in folders for file in Path(folder).rglob("*.py"))}
    held = {file: content for file in every if file.is_file() and (content := file.read_bytes()).strip()}
    if held.keys() <= {Path(path)}:
        return digest_of(Path(path).read_bytes())
    named = sorted((os.path.relpath(file, root.parent), digest_of(content)) for file, content in held.items())
    return digest_of(json.dumps([os.path.relpath(path, root.parent), named]).encode())


def imported() -> bool:
    """Return whether modules that are a user's own, not installed, are in this process."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return any(_is_users(file) for file in files if isinstance(file, str))


def theirs(error: BaseException) -> str:
    """An exception in one line, with the last place in code that is not linbench's own, where there is
    one."""
    if isinstance(error, UserError):
        return str(error)
    message = re.sub(rf"{PREFIX}\w+\.", "", message_of(error)).strip().splitlines()
    return f"{users_place(error)}{type(error).__name__}{': ' + message[0] if message else ''}"


def users_place(error: BaseException) -> str:
    """`mine.py line 3: `, the last place in a user's code that an exception came through; empty where it came
    through none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name} line {error.lineno}: "
    outside = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f"{Path(outside[-1].filename).name} line {outside[-1].lineno}: " if outside else ""


def _is_users(filename: str) -> bool:
    path = Path(filename)
    shipped = any(
        path.resolve().is_relative_to((_OURS / room).resolve())
        for room in (".", "tasks", "models", "kernels")
    )
    return (
        path.suffix == ".py"
        and not shipped
        and "site-packages" not in path.parts
        and not filename.startswith(sys.base_prefix)
    )
