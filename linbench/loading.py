"""Importing what a user brings, and telling their errors from ours."""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from linbench.common.errors import PluginError, UserError, unknown

_OURS = Path(__file__).parent


def is_location(name: str) -> bool:
    """Whether a name is `file.py`, `file.py:Class` or `package.module:Class` rather than a registered one."""
    return ":" in name or name.endswith(".py")


def import_path(path: Path) -> ModuleType:
    """Import a file under a name made from its place and its content: equal file names do not meet, and an edited file is read anew."""
    resolved = path.resolve()
    name = f"linbench_plugin_{digest_of(str(resolved).encode() + resolved.read_bytes())[:16]}_{resolved.stem}"
    if name in sys.modules:
        return sys.modules[name]
    loader = _AsItIsNow(name, str(resolved))
    spec = importlib.util.spec_from_file_location(name, resolved, loader=loader)
    if spec is None:
        raise UserError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _reach(resolved.parent)
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


class _AsItIsNow(SourceFileLoader):
    """Without the bytecode beside it, which may be that of an earlier file: Python tells them apart by size and second alone."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _reach(folder: Path) -> None:
    """Let what a user brings import its neighbours, after everything that is installed."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def load_location(location: str, candidates: Callable[[ModuleType], list[Any]]) -> Any:
    """The class at `./file.py:Class` or `package.module:Class`; the class may be left out where there is only one candidate.

    Raises UserError: no such file, module or class. PluginError: it failed while being imported.
    """
    where, _, name = location.partition(":")
    try:
        if where.endswith(".py"):
            if not Path(where).is_file():
                raise UserError(f"there is no file {where} in {Path.cwd()}.")
            module = import_path(Path(where))
        else:
            _reach(Path.cwd())
            module = importlib.import_module(where)
    except UserError:
        raise
    except ModuleNotFoundError as missing:
        if missing.name and (where == missing.name or where.startswith(missing.name + ".")):
            raise UserError(f"there is no module {where}: {missing}.") from None
        raise PluginError(f"{location} could not be imported: {theirs(missing)}.") from missing
    except (Exception, SystemExit) as error:
        raise PluginError(f"{location} could not be imported: {theirs(error)}.") from error
    classes = {cls.__name__: cls for cls in candidates(module)}
    if not name:
        if len(classes) == 1:
            return next(iter(classes.values()))
        number = len(classes) or "no"
        raise UserError(f"{location} has {number} classes that could be meant; name one as {location}:Class. Allowed: {', '.join(classes) or 'none'}.")
    if name not in vars(module):
        raise unknown(f"class in {where}", name, classes)
    return vars(module)[name]


def digest_of(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def source_digest(cls: type) -> str | None:
    """SHA-256 of the file that defines a class, as it was when first asked for; None where there is no file."""
    return _module_digest(cls.__module__)


@cache
def _module_digest(name: str) -> str | None:
    path = getattr(sys.modules.get(name), "__file__", None)
    return digest_of(Path(path).read_bytes()) if path else None


def theirs(error: BaseException) -> str:
    """An exception in one line, with the last place in code that is not linbench's own, where there is one."""
    if isinstance(error, UserError):
        return str(error)
    message = str(error).strip().splitlines()
    return f"{users_place(error)}{type(error).__name__}{': ' + message[0] if message else ''}"


def users_place(error: BaseException) -> str:
    """`mine.py line 3: `, the last place in a user's code that an exception came through; empty where it came through none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name} line {error.lineno}: "
    outside = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f"{Path(outside[-1].filename).name} line {outside[-1].lineno}: " if outside else ""


def _is_users(filename: str) -> bool:
    path = Path(filename)
    shipped = any(path.resolve().is_relative_to((_OURS / room).resolve()) for room in (".", "tasks", "models", "kernels"))
    return path.suffix == ".py" and not shipped and "site-packages" not in path.parts and not filename.startswith(sys.base_prefix)
