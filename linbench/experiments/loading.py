"""Importing a user's files and modules, and distinguishing their errors from linbench's."""

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
    """Return whether a name is `file.py`, `file.py:Class` or `package.module:Class`, not a registered one."""
    return ":" in name or name.endswith(".py")


class ImportedModule(NamedTuple):
    """An imported module that a user named.

    digest: the hash of the source that decides what it computes. plugin: its files; None if it is installed.
    """

    module: ModuleType
    digest: str | None
    plugin: Plugin | None = None


class LocatedClass(NamedTuple):
    """A class that a user named by its location: the class, its name there, and the module."""

    cls: Any
    name: str
    where: ImportedModule


def import_path(path: Path) -> ImportedModule:
    """Import a file as it is now.

    Its imports are looked for beside it, in the packages that contain it, and in the current folder if that
    contains the file.
    """
    file = path.resolve()
    content = file.read_bytes()
    folder = file.parent
    parts = [file.stem.replace(".", "_")]
    folders = [folder]
    files: dict[str, File] = {}
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
    files[name] = File(str(file), content, package=name in files and file.stem == "__init__")
    return _imported_module(load(name, files, folders))


def import_name(name: str) -> ImportedModule:
    """Import a module by its name.

    A module in the current folder, or in a folder on Python's path, is imported as a user's file; an
    installed one as Python does.

    Raises UserError: there is no such module.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(f"there is no module '{name}'; a module's name is words joined by dots.")
    top = name.partition(".")[0]
    folders = [] if top in SHARED else _users_folders(top)
    if not folders:
        module = importlib.import_module(name)
        return ImportedModule(module, installed_digest(module))
    files = _packages(f"{name}.", folders)
    if name not in files:
        raise UserError(f"there is no module {name} in {folders[0]}.")
    return _imported_module(load(name, files, folders))


def _imported_module(plugin: Plugin) -> ImportedModule:
    return ImportedModule(plugin.module, plugin.digest, plugin)


def _packages(name: str, folders: list[Path]) -> dict[str, File]:
    """Return the files of the packages that contain a module."""
    above = candidates(name.rpartition(".")[0])
    return {package: file for package in above if (file := find(package, folders)) is not None}


def _users_folders(top: str) -> list[Path]:
    """Return the user's folder that has a module of that name; none if it is installed or missing."""
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
    is_package_file = spec.submodule_search_locations is not None and not place.is_dir()
    folder = place.parent.parent if is_package_file else place.parent
    return [folder] if find(top, [folder]) is not None else []


_INSTALLED = {"site-packages", "dist-packages"}


def load_location(location: str, base: type) -> LocatedClass:
    """Import the class at `./file.py:Class` or `package.module:Class`.

    Args:
        location: the location. Without a class it means the only one of that base.
        base: the base of classes that may be meant.

    Raises UserError: there is no such file, module or class; PluginError: the import failed.
    """
    where, _, name = location.rpartition(":") if ":" in location else (location, "", "")
    try:
        if where.endswith(".py"):
            if not Path(where).is_file():
                raise UserError(f"there is no file {where} in {Path.cwd()}.")
            imported_module = import_path(Path(where))
        else:
            imported_module = import_name(where)
    except UserError:
        raise
    except ModuleNotFoundError as missing:
        if missing.name and (where == missing.name or where.startswith(missing.name + ".")):
            raise UserError(f"there is no module {where}: {missing}.") from None
        raise PluginError(f"{location} could not be imported: {describe_error(missing)}.") from missing
    except (Exception, SystemExit) as error:
        raise PluginError(f"{location} could not be imported: {describe_error(error)}.") from error
    defined, imported_classes = _classes(imported_module.module, base)
    if not name:
        if len(defined or imported_classes) == 1:
            name, cls = next(iter((defined or imported_classes).items()))
            return LocatedClass(cls, name, imported_module)
        number = len(defined) or "no"
        raise UserError(
            f"{where} has {number} suitable classes; name one as {where}:Class. Allowed:"
            f" {_listed([*defined, *imported_classes])}."
        )
    if not hasattr(imported_module.module, name):
        raise _no_class(where, name, [*defined, *imported_classes])
    cls = getattr(imported_module.module, name)
    # of a shared package only the file that defines the class counts
    if imported_module.module.__name__.partition(".")[0] in SHARED:
        imported_module = imported_module._replace(
            digest=installed_digest(
                sys.modules.get(getattr(cls, "__module__", None) or "", imported_module.module)
            )
        )
    return LocatedClass(cls, name, imported_module)


def _classes(module: ModuleType, base: type) -> tuple[dict[str, type], dict[str, type]]:
    """Return the classes of a base that a module defines, and those imported from the same user's files."""
    own: dict[str, type] = {}
    others: dict[str, type] = {}
    top = module.__name__.partition(".")[0]
    for name, cls in vars(module).items():
        if not (isinstance(cls, type) and issubclass(cls, base)):
            continue
        if cls.__module__ == module.__name__:
            own[name] = cls
        elif cls.__module__.partition(".")[0] == top:
            others[name] = cls
    return own, others


def _no_class(where: str, name: str, classes: list[str]) -> UserError:
    if classes:
        return unknown(f"class in {where}", name, classes)
    return UserError(f"unknown class in {where} '{name}'; the file has no suitable class.")


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def installed_digest(module: ModuleType, distribution: Distribution | None = None) -> str | None:
    """Return the SHA-256 of an installed module's source, or None if it has no file.

    The source is all Python files of its package and its distribution, as they were at the first call. Of a
    module of Python, torch or linbench it is the module's file alone.
    """
    path = getattr(module, "__file__", None)
    if path is None:
        return None
    top = module.__name__.partition(".")[0]
    folders = () if top in SHARED else tuple(getattr(sys.modules.get(top), "__path__", ()))
    distributed = (distribution.files or ()) if distribution else ()
    others = tuple(Path(str(each.locate())) for each in distributed if each.suffix == ".py")
    return _digest_of_all(path, folders, others)


@cache
def _digest_of_all(path: str, folders: tuple[str, ...], others: tuple[Path, ...]) -> str:
    root = Path(folders[0]) if folders else Path(path).parent
    paths = {Path(path), *others}
    for folder in folders:
        paths.update(Path(folder).rglob("*.py"))
    contents = {file: file.read_bytes() for file in paths if file.is_file()}
    sources = {file: content for file, content in contents.items() if content.strip()}
    if sources.keys() <= {Path(path)}:
        return digest_of(Path(path).read_bytes())
    digests = sorted(
        (os.path.relpath(file, root.parent), digest_of(content)) for file, content in sources.items()
    )
    return digest_of(json.dumps([os.path.relpath(path, root.parent), digests]).encode())


def has_user_modules() -> bool:
    """Return whether this process has imported a user's own module that is not installed."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return any(_is_users(file) for file in files if isinstance(file, str))


def describe_error(error: BaseException) -> str:
    """Describe an exception in one line, without a full stop, with the last place in a user's code."""
    if isinstance(error, UserError):
        return str(error).removesuffix(".")
    message = re.sub(rf"{PREFIX}\w+\.", "", message_of(error)).strip().splitlines()
    words = f": {message[0]}" if message else ""
    return f"{user_location(error)}{type(error).__name__}{words}"


def user_location(error: BaseException) -> str:
    """Return the last place in a user's code that an exception came through, such as `mine.py line 3: `.

    It is empty if the exception did not come through a user's code.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name} line {error.lineno}: "
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f"{Path(frames[-1].filename).name} line {frames[-1].lineno}: " if frames else ""


def _is_users(filename: str) -> bool:
    path = Path(filename)
    if path.suffix != ".py" or "site-packages" in path.parts or filename.startswith(sys.base_prefix):
        return False
    # tasks, models and kernels are links out of the package
    ours = [(_OURS / room).resolve() for room in (".", "tasks", "models", "kernels")]
    return not any(path.resolve().is_relative_to(folder) for folder in ours)
