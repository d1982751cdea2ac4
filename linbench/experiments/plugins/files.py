"""Files of a user: which one an import means, and what it holds."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

SHARED = frozenset(sys.stdlib_module_names) | {"linbench", "torch", "triton", "numpy"}
"""Packages that every process has once: a file of a user's with such a name is never imported in their
place."""


class File(NamedTuple):
    """A module's file as it was read. content: None for a folder without `__init__.py`, which is a package of
    its own kind."""

    path: str
    content: bytes | None
    package: bool = False

    @property
    def compiled(self) -> bool:
        """Whether it is an extension module rather than Python source."""
        return self.content is not None and not self.path.endswith(".py")

    @property
    def folder(self) -> Path:
        """The folder that a package's modules lie in."""
        return Path(self.path).parent if self.content is not None else Path(self.path)


def find(name: str, folders: Sequence[Path]) -> File | None:
    """Read the file that `import name` means to code in these folders; None if they have none.

    The first folder with the top of the name wins. A folder without `__init__.py` counts only where nothing
    installed has its name.
    """
    path = _locate(name, folders)
    if path is None:
        return None
    return (
        File(str(path), None, package=True)
        if path.is_dir()
        else File(str(path), path.read_bytes(), path.name == "__init__.py")
    )


def _locate(name: str, folders: Sequence[Path]) -> Path | None:
    parent, _, last = name.rpartition(".")
    if not last.isidentifier() or (not parent and last in SHARED):
        return None
    if parent:
        above = _locate(parent, folders)
        if above is None or not (above.is_dir() or above.name == "__init__.py"):
            return None
        folders = [above if above.is_dir() else above.parent]
    for folder in folders:
        for end in (f"{last}/__init__.py", *(f"{last}{suffix}" for suffix in (*EXTENSION_SUFFIXES, ".py"))):
            if (folder / end).is_file():
                return folder / end
    bare = next((folder / last for folder in folders if (folder / last).is_dir()), None)
    return bare if parent or bare is None or not is_installed(last) else None


def is_installed(top: str) -> bool:
    """Whether an installed package, or any file on Python's path, has that name; a bare folder does not."""
    with suppress(ImportError, ValueError):
        spec = find_spec(top)
        return spec is not None and spec.origin is not None
    return False
