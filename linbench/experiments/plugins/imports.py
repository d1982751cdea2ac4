"""What Python source imports, read from its syntax: also what it imports only when a function is called."""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from linbench.experiments.plugins.files import SHARED, File

_CALLS = {"import_module", "__import__"}


class Import(NamedTuple):
    """`import module`, or `from module import names`, with as many dots before as `level`."""

    level: int
    module: str
    names: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def imports_of(source: bytes) -> tuple[Import, ...]:
    """Return every import of a source, wherever it stands; none of a source that cannot be parsed, which
    cannot be imported either."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(found for node in ast.walk(tree) for found in _imports(node))


def _imports(node: ast.AST) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(0, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield Import(node.level, node.module or "", tuple(alias.name for alias in node.names))
    elif (
        isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ):
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if called in _CALLS:
            bare = node.args[0].value.lstrip(".")
            yield Import(len(node.args[0].value) - len(bare), bare)


def is_relative(source: bytes) -> bool:
    """Whether a source imports `from .` something, which only a module of a package can."""
    return any(found.level for found in imports_of(source))


def named_by(name: str, file: File) -> set[str]:
    """Return the names of all modules that a module's imports may mean, whether there are such modules or
    not."""
    if file.content is None or file.compiled:
        return set()
    package = name if file.package else name.rpartition(".")[0]
    return {each for found in imports_of(file.content) for each in _candidates(found, package)}


def candidates(base: str, names: tuple[str, ...] = ()) -> list[str]:
    """`a.b` and names -> a, a.b, a.b.NAME: what must be imported for it."""
    parts = base.split(".") if base else []
    above = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return above + [f"{base}.{name}" if base else name for name in names]


def _candidates(found: Import, package: str) -> list[str]:
    if found.level == 0:
        return candidates(found.module, found.names)
    parts = package.split(".") if package else []
    kept = len(parts) - (found.level - 1)
    if kept < 0:  # above the folder: Python refuses it too
        return []
    return candidates(".".join([*parts[:kept], *([found.module] if found.module else [])]), found.names)


def reach(
    files: Mapping[str, File],
    lookup: Callable[[str], File | None],
    more: Mapping[str, set[str]] | None = None,
) -> dict[str, File]:
    """Return these modules and all of a user's that they may import in turn, by name.

    Args:
        files: the modules to begin with.
        lookup: the file of another module, or None where it is not a user's.
        more: modules that a module was seen to import by names that its source does not spell out.
    """
    found, todo = dict(files), [*files]
    while todo:
        here = todo.pop()
        for target in sorted(named_by(here, found[here]) | (more or {}).get(here, set())):
            for each in _children(target, found) if target.endswith(".*") or target == "*" else [target]:
                if (
                    each not in found
                    and each.partition(".")[0] not in SHARED
                    and (file := lookup(each)) is not None
                ):
                    found[each] = file
                    todo.append(each)
    return found


def _children(star: str, found: Mapping[str, File]) -> list[str]:
    """The modules of a package from which everything is imported: its `__all__` may name any of them."""
    package = found.get(star.rpartition(".")[0])
    if package is None or not package.package:
        return []
    prefix = star.removesuffix("*")
    return sorted(
        f"{prefix}{path.stem}" for path in Path(package.folder).glob("*.py") if path.stem != "__init__"
    )
