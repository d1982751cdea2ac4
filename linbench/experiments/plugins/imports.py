"""The imports of Python source, read from its syntax, including those inside functions."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from linbench.experiments.plugins.files import SHARED, File

_CALLS = {"import_module", "__import__"}


class Import(NamedTuple):
    """An import: `import module`, or `from module import names` with `level` dots before the module."""

    level: int
    module: str
    names: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def imports_of(source: bytes) -> tuple[Import, ...]:
    """Return every import of a source; none if it cannot be parsed, since it cannot be imported either."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(found_import for node in ast.walk(tree) for found_import in _imports(node))


def _imports(node: ast.AST) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(0, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield Import(node.level, node.module or "", tuple(alias.name for alias in node.names))
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        function = getattr(node.func, "id", getattr(node.func, "attr", ""))
        name = node.args[0].value
        if function in _CALLS and isinstance(name, str):
            bare = name.lstrip(".")
            yield Import(len(name) - len(bare), bare)


def is_relative(source: bytes) -> bool:
    """Return whether a source has a relative import, which only a module of a package can have."""
    return any(found_import.level for found_import in imports_of(source))


def imported_names(name: str, file: File) -> set[str]:
    """Return the names of all modules that a module's imports may mean, whether they exist or not."""
    if file.content is None or file.compiled:
        return set()
    package = name if file.package else name.rpartition(".")[0]
    return {
        module for found_import in imports_of(file.content) for module in _candidates(found_import, package)
    }


def candidates(base: str, names: tuple[str, ...] = ()) -> list[str]:
    """Return the modules that an import of names from `a.b` may load: a, a.b, and a.b.NAME for each name."""
    parts = base.split(".") if base else []
    above = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return above + [f"{base}.{name}" if base else name for name in names]


def _candidates(found_import: Import, package: str) -> list[str]:
    if found_import.level == 0:
        return candidates(found_import.module, found_import.names)
    parts = package.split(".") if package else []
    levels = len(parts) - (found_import.level - 1)
    if levels < 0:  # above the top package: Python refuses it too
        return []
    base = [*parts[:levels], found_import.module] if found_import.module else parts[:levels]
    return candidates(".".join(base), found_import.names)


def reachable_modules(
    files: Mapping[str, File],
    lookup: Callable[[str], File | None],
    more: Mapping[str, set[str]] | None = None,
) -> dict[str, File]:
    """Return modules and all of a user's modules that they may import in turn, by name.

    Args:
        files: the modules to begin with.
        lookup: returns the file of another module, or None if it is not a user's.
        more: for a module the names it was seen to import that its source does not spell out.
    """
    reached, todo = dict(files), [*files]
    while todo:
        here = todo.pop()
        targets = imported_names(here, reached[here]) | (more or {}).get(here, set())
        for name in _expand_stars(sorted(targets), reached):
            if name in reached or name.partition(".")[0] in SHARED:
                continue
            file = lookup(name)
            if file is not None:
                reached[name] = file
                todo.append(name)
    return reached


def _expand_stars(names: Iterable[str], reached: Mapping[str, File]) -> Iterator[str]:
    for name in names:
        if name == "*" or name.endswith(".*"):
            yield from _children(name, reached)
        else:
            yield name


def _children(star: str, reached: Mapping[str, File]) -> list[str]:
    """Return the modules of a package for `import *`: its `__all__` may name any of them."""
    package = reached.get(star.rpartition(".")[0])
    if package is None or not package.package:
        return []
    prefix = star.removesuffix("*")
    return sorted(
        f"{prefix}{path.stem}" for path in Path(package.folder).glob("*.py") if path.stem != "__init__"
    )
