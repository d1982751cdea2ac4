"""Modules made of a user's files, in a space of names of their own: plugins of two folders never meet, and
what was read is what runs.

In a space `import helper` means the helper beside the file that says so. It is loaded as
`linbench_plugin_HASH.helper`, from the bytes that were read when the plugin was: an edit in the middle of a
run changes nothing that runs. A plugin travels to another process as these bytes.
"""

import builtins
import hashlib
import importlib
import json
import linecache
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, SourceFileLoader
from importlib.util import resolve_name, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from linbench.common.errors import PluginError
from linbench.experiments.plugins.files import SHARED, File, find
from linbench.experiments.plugins.imports import candidates, named_by, reach

PREFIX = "linbench_plugin_"
"""What the names of all spaces begin with."""

_PYTHON = builtins.__import__


class Plugin(NamedTuple):
    """A module of a user's that is loaded, with every file of theirs that it imports, by the name that it
    imports it by."""

    space: str
    name: str
    folders: tuple[str, ...]
    files: dict[str, File]

    @property
    def module(self) -> ModuleType:
        """The module itself."""
        return sys.modules[f"{self.space}.{self.name}"]

    @property
    def digest(self) -> str:
        """SHA-256 of the file where there is but one; else of all files that hold anything, with their
        names."""
        held = {
            name: file.content
            for name, file in self.files.items()
            if file.content is not None and file.content.strip()
        }
        if held.keys() <= {self.name}:
            return digest_of(held.get(self.name, b""))
        names = [self.name, *sorted(held.keys() - {self.name})]
        return digest_of(json.dumps([[name, digest_of(held.get(name, b""))] for name in names]).encode())


def digest_of(content: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def load(name: str, files: Mapping[str, File], folders: Sequence[Path]) -> Plugin:
    """Load a module of a user's as its files are now; one whose files are all as they were is not loaded
    again.

    Args:
        name: of the module, as code beside it would import it.
        files: the module itself and the packages that it is in, by name.
        folders: where its imports are looked for.
    """
    lookup = _Lookup(folders)
    return _space(tuple(map(str, folders)), name, reach(files, lookup)).load(name)


def arrive(plugin: Plugin) -> ModuleType:
    """Load a plugin that came from another process, from the bytes that it came with. Nothing is read or
    written here."""
    space = _SPACES.get(plugin.space)
    if space is None or not space.agrees(plugin.files):
        name = plugin.space if space is None else _fresh(plugin.folders)
        space = _SPACES[name] = Space(name, plugin.folders, live=False)
    space.files |= plugin.files
    if plugin.name not in space.loaded:
        space.loaded[plugin.name] = frozenset(plugin.files)
    return importlib.import_module(f"{space.name}.{plugin.name}")


class _Lookup:
    """Files by name, each read once."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders, self.found = folders, dict[str, File | None]()

    def __call__(self, name: str) -> File | None:
        if name not in self.found:
            self.found[name] = find(name, self.folders)
        return self.found[name]


class Space:
    """Modules that import one another by their own names.

    Args:
        name: of the package that they lie in for Python.
        folders: where imports are looked for.
        live: whether there may be more in these folders than is known, as on the machine where they are.
    """

    def __init__(self, name: str, folders: tuple[str, ...], *, live: bool) -> None:
        self.name, self.folders, self.live = name, folders, live
        self.files: dict[str, File] = {}
        self.loaded: dict[str, frozenset[str]] = {}
        self._seen: dict[str, set[str]] = {}
        """By module, what it imported by names that its source does not spell out."""
        self._loading: str | None = None
        package = ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package

    def agrees(self, files: Mapping[str, File]) -> bool:
        """Whether no file is another than it was when it was read."""
        return all(self.files.get(name, file) == file for name, file in files.items())

    def is_current(self, name: str) -> bool:
        """Whether what a loaded module imported besides is still as it was."""
        return all(
            find(each, [*map(Path, self.folders)]) == self.files[each]
            for each in self.loaded.get(name, ())
            if each in self._besides()
        )

    def _besides(self) -> set[str]:
        return {each for names in self._seen.values() for each in names}

    def load(self, name: str) -> Plugin:
        """Import a module whose files are known."""
        if name not in self.loaded:
            before, self._loading = self._loading, name
            try:
                importlib.import_module(f"{self.name}.{name}")
            finally:
                self._loading = before
            began = {each: self.files[each] for each in candidates(name)}
            self.loaded[name] = frozenset(reach(began, self.files.get, self._seen))
        return Plugin(
            self.name, name, self.folders, {each: self.files[each] for each in sorted(self.loaded[name])}
        )

    def has(self, top: str) -> bool:
        """Whether `import top` means a module of this space."""
        return top not in SHARED and (top in self.files or self._find(top) is not None)

    def _find(self, name: str) -> File | None:
        return find(name, [*map(Path, self.folders)]) if self.live else None

    def require(self, importer: str, names: Iterable[str]) -> None:
        """Take note of what a module imports by a name that its source does not spell out.

        Raises PluginError: it does so while it runs, when its identity is settled without.
        """
        spelt = named_by(importer, self.files[importer]) if importer in self.files else set()
        for name in names:
            if name not in spelt and self.file(name) is not None:
                self._note(importer, name)

    def file(self, name: str) -> File | None:
        """The file of a module of this space, read now if it was not before; None: there is none."""
        if name not in self.files and (file := self._find(name)) is not None:
            self.files |= reach({**self.files, name: file}, _Lookup([*map(Path, self.folders)]))
        return self.files.get(name)

    def _note(self, importer: str, name: str) -> None:
        module = sys.modules.get(f"{self.name}.{importer}")
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            self._seen.setdefault(importer, set()).add(name)
        elif self._loading is not None:
            self._seen.setdefault(self._loading, set()).add(name)
        elif any(name not in known for known in self.loaded.values() if not importer or importer in known):
            sentence = (
                "its results would not be told from those of another version of it; import it at the top of"
                " the file"
            )
            raise PluginError(
                f"{importer or 'a plugin'} imports {name} while it runs, by a name that is made up there:"
                f" {sentence}."
            )

    def importer(self, module: str) -> Callable[..., ModuleType]:
        """Return what `import` does in a module of this space."""

        # the names of its arguments are Python's: code may give them by name
        def imported(
            name: str,
            globals: Any = None,  # noqa: A002
            locals: Any = None,  # noqa: A002
            fromlist: Any = (),
            level: int = 0,
        ) -> ModuleType:
            asked = self._asked(name, level, globals or {})
            if asked is None:
                found = _PYTHON(name, globals, locals, fromlist, level)
                return _Importlib(self, module) if found is importlib else found
            self.require(module, candidates(asked, tuple(each for each in fromlist or () if each != "*")))
            if level:
                return _PYTHON(name, globals, locals, fromlist, level)
            found = _PYTHON(f"{self.name}.{name}", globals, locals, fromlist, 0)
            return found if fromlist else sys.modules[f"{self.name}.{name.partition('.')[0]}"]

        # a compiled function that imports calls this, and is not to be compiled with it
        vars(imported)["_torchdynamo_disable"] = True
        return imported

    def _asked(self, name: str, level: int, where: Mapping[str, Any]) -> str | None:
        """A module of this space by its name here; None: another one is meant."""
        if level:
            return (
                resolve_name("." * level + name, where.get("__package__"))
                .removeprefix(self.name)
                .removeprefix(".")
            )
        return name if self.has(name.partition(".")[0]) else None


class _Importlib(ModuleType):
    """`importlib` as a module of a space has it: names mean there what they mean to `import`."""

    def __init__(self, space: Space, module: str) -> None:
        super().__init__("importlib")
        self._space, self._module = space, module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """As importlib's own."""
        whole = resolve_name(name, package) if name.startswith(".") else name
        space = self._space
        if whole.startswith(f"{space.name}."):
            whole = whole.removeprefix(f"{space.name}.")
        elif not space.has(whole.partition(".")[0]):
            return importlib.import_module(whole)
        space.require(self._module, candidates(whole))
        return importlib.import_module(f"{space.name}.{whole}")


_SPACES: dict[str, Space] = {}
"""By name."""


def _space(folders: tuple[str, ...], name: str, files: dict[str, File]) -> Space:
    """The latest space of these folders that has the files as they are now, a new one if there is none."""
    alike = [
        space
        for space in _SPACES.values()
        if space.folders == folders and space.agrees(files) and space.is_current(name)
    ]
    space = next((space for space in alike if name in space.loaded), alike[-1] if alike else None)
    if space is None:
        new = _fresh(folders)
        space = _SPACES[new] = Space(new, folders, live=True)
    space.live = True  # what came from elsewhere is here, too
    space.files = files | space.files
    return space


def _fresh(folders: tuple[str, ...]) -> str:
    """A name that another process that reads the same files in the same order finds as well."""
    number = sum(space.folders == folders for space in _SPACES.values())
    return f"{PREFIX}{digest_of(json.dumps([folders, number]).encode())[:16]}"


class _Finder(MetaPathFinder):
    """Finds modules of spaces, and nothing else."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        prefix, _, name = fullname.partition(".")
        space = _SPACES.get(prefix) if prefix.startswith(PREFIX) else None
        if space is None or not name:
            return None
        if name not in space.files:
            space.require("", [name])
        file = space.files.get(name)
        if file is None:  # Python's own finders would look in the folder of its package
            raise ModuleNotFoundError(f"No module named {name!r}", name=fullname)
        return _spec(fullname, name, file, space)


def _spec(fullname: str, name: str, file: File, space: Space) -> ModuleSpec | None:
    folders = [str(file.folder)] if file.package else None
    if file.content is None:
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = folders
        return spec
    loader = (
        ExtensionFileLoader(fullname, file.path)
        if file.compiled
        else _Loader(fullname, file, space.importer(name))
    )
    return spec_from_file_location(fullname, file.path, loader=loader, submodule_search_locations=folders)


class _Loader(SourceFileLoader):
    """Runs the source that was read, whatever stands in the file now or in bytecode beside it."""

    def __init__(self, fullname: str, file: File, importer: Callable[..., ModuleType]) -> None:
        super().__init__(fullname, file.path)
        self._source, self._importer = file.content or b"", importer

    def get_data(self, path: str) -> bytes:
        """The source as it was read; other files from where they are."""
        return self._source if path == self.path else super().get_data(path)

    def get_code(self, fullname: str) -> CodeType:
        """The source, compiled."""
        return self.source_to_code(self._source, self.path)

    def exec_module(self, module: ModuleType) -> None:
        """Run the source with imports of the space; what asks for the source later, as Triton does, is given
        the same."""
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._importer}
        super().exec_module(module)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """None, for an ordinary module; its lines are kept for whoever shows them."""
        self.get_code(spec.name)  # first, so that what is no Python is told with its line
        text = self.get_source(spec.name) or ""
        linecache.cache[self.path] = (len(text), None, text.splitlines(keepends=True), self.path)
        return None


sys.meta_path.insert(0, _Finder())
