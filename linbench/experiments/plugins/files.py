"""Files of users: finding and reading the one that an import means."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

SHARED = frozenset(sys.stdlib_module_names) | {"linbench", "torch", "triton", "numpy"}
"""Packages that a process has only once. A user's file with such a name is never imported in their place."""


class File(NamedTuple):
    """A module's file as it was read.

    Args:
        content: its bytes; None for a folder without `__init__.py` (a namespace package).
    """

    path: str
    content: bytes | None
    package: bool = False

    @property
    def compiled(self) -> bool:
        """True if it is an extension module, not Python source."""
        return self.content is not None and not self.path.endswith(".py")

    @property
    def folder(self) -> Path:
        """The folder of a package's modules."""
        return Path(self.path).parent if self.content is not None else Path(self.path)


def find(name: str, folders: Sequence[Path]) -> File | None:
    """Read the file that `import name` means to code in these folders; None if there is none.

    The first folder with the first part of the name wins. A folder without `__init__.py` counts only if no
    installed package has its name.
    """
    path = _locate(name, folders)
    if path is None:
        return None
    if path.is_dir():
        return File(str(path), None, package=True)
    return File(str(path), path.read_bytes(), path.name == "__init__.py")


def _locate(name: str, folders: Sequence[Path]) -> Path | None:
    parent, _, last = name.rpartition(".")
    if not last.isidentifier() or (not parent and last in SHARED):
        return None
    if parent:
        above = _locate(parent, folders)
        if above is None or not (above.is_dir() or above.name == "__init__.py"):
            return None
        folders = [above if above.is_dir() else above.parent]
    endings = ["/__init__.py", *EXTENSION_SUFFIXES, ".py"]
    for folder in folders:
        for end in (f"{last}{ending}" for ending in endings):
            if (folder / end).is_file():
                return folder / end
    bare = next((folder / last for folder in folders if (folder / last).is_dir()), None)
    return bare if parent or bare is None or not is_installed(last) else None


def is_installed(top: str) -> bool:
    """Return whether an installed package or a file on Python's path has that name; a bare folder has not."""
    with suppress(ImportError, ValueError):
        spec = find_spec(top)
        return spec is not None and spec.origin is not None
    return False
