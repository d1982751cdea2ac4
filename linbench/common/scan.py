"""Finding parts by looking into a folder: whatever lies there is found, and no list names it."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType


def submodules(package: ModuleType) -> Iterator[ModuleType]:
    """Import and yield the modules of a package in the order of their names.

    Args:
        package: the package to look into. Folders that are added to its `__path__` are looked into, too.

    Yields:
        each module or package in it whose name does not begin with an underscore.
    """
    for name in submodule_names(package):
        yield import_module(f"{package.__name__}.{name}")


def submodule_names(package: ModuleType) -> list[str]:
    """Return the sorted names of a package's public modules, without importing any."""
    return sorted(
        module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_")
    )


def subpackage_names(package: ModuleType) -> list[str]:
    """Return the sorted names of a package's public subpackages, without importing any."""
    return sorted(
        module.name
        for module in pkgutil.iter_modules(package.__path__)
        if module.ispkg and not module.name.startswith("_")
    )


def data_files(package: ModuleType, suffix: str) -> dict[str, Path]:
    """Return the files of one kind that lie beside a package's modules, by their names without the suffix.

    Args:
        package: the package to look into. Folders that are added to its `__path__` are looked into, too.
        suffix: how the files' names end, such as ".yaml".
    """
    files = {path.name.removesuffix(suffix): path for path in _files(package) if path.name.endswith(suffix)}
    return dict(sorted(files.items()))


def _files(package: ModuleType) -> Iterator[Path]:
    for folder in package.__path__:
        yield from Path(folder).iterdir()
