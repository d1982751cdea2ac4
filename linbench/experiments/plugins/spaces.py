"""Modules of users' files, loaded into spaces of names so that plugins of two folders never mix.

In a space `import helper` means the helper beside the importing file. It is loaded as
`linbench_plugin_HASH.helper` from the bytes that were read together with the plugin, so that an edit during a
run changes nothing. A plugin is sent to another process as these bytes.
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
from linbench.experiments.plugins.imports import candidates, imported_names, reachable_modules

PREFIX = "linbench_plugin_"
"""The prefix of the names of all spaces."""

_PYTHON = builtins.__import__


class Plugin(NamedTuple):
    """A loaded module of a user, with every file of theirs that it imports, by the imported name."""

    space: str
    name: str
    folders: tuple[str, ...]
    files: dict[str, File]

    @property
    def module(self) -> ModuleType:
        """The loaded module."""
        return sys.modules[f"{self.space}.{self.name}"]

    @property
    def digest(self) -> str:
        """The SHA-256 of the only file, or of all files that are not empty, with their names."""
        contents = {name: file.content for name, file in self.files.items() if file.content is not None}
        return digest_of_modules(self.name, contents)


def digest_of_modules(name: str, contents: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of a module and all that it imports: of the only one, or of all with their names.

    Args:
        name: of the module itself.
        contents: of all modules by their names; empty ones do not count.
    """
    sources = {each: content for each, content in contents.items() if content.strip()}
    if sources.keys() <= {name}:
        return digest_of(sources.get(name, b""))
    names = [name, *sorted(sources.keys() - {name})]
    return digest_of(json.dumps([[each, digest_of(sources.get(each, b""))] for each in names]).encode())


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def load(name: str, files: Mapping[str, File], folders: Sequence[Path]) -> Plugin:
    """Load a user's module as its files are now; if none has changed, the loaded module is returned.

    Args:
        name: the name by which code beside the module would import it.
        files: the module itself and the packages that contain it, by name.
        folders: the folders in which its imports are looked for.
    """
    lookup = _Lookup(folders)
    return _space(tuple(map(str, folders)), name, reachable_modules(files, lookup)).load(name)


def receive_plugin(plugin: Plugin) -> ModuleType:
    """Load a plugin that another process sent, from the bytes it came with. No file is read or written."""
    space = _SPACES.get(plugin.space)
    if space is None or not space.agrees(plugin.files):
        name = plugin.space if space is None else _fresh(plugin.folders)
        space = _SPACES[name] = Space(name, plugin.folders, live=False)
    space.files |= plugin.files
    if plugin.name not in space.loaded:
        space.loaded[plugin.name] = frozenset(plugin.files)
    return importlib.import_module(f"{space.name}.{plugin.name}")


class _Lookup:
    """A lookup of files by name that reads each once."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders, self.found = folders, dict[str, File | None]()

    def __call__(self, name: str) -> File | None:
        if name not in self.found:
            self.found[name] = find(name, self.folders)
        return self.found[name]


class Space:
    """A space of modules that import one another by their own names.

    Args:
        name: the name of the package that contains them for Python.
        folders: the folders in which imports are looked for.
        live: whether the folders exist on this machine, so that further files may be found there.
    """

    def __init__(self, name: str, folders: tuple[str, ...], *, live: bool) -> None:
        self.name, self.folders, self.live = name, folders, live
        self.files: dict[str, File] = {}
        self.loaded: dict[str, frozenset[str]] = {}
        self._seen: dict[str, set[str]] = {}
        """The names that each module imported and that its source does not spell out."""
        self._loading: str | None = None
        package = ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package

    def agrees(self, files: Mapping[str, File]) -> bool:
        """Return whether none of these files differs from the one that was read."""
        return all(self.files.get(name, file) == file for name, file in files.items())

    def is_current(self, name: str) -> bool:
        """Return whether files that a module imported without spelling out their names are unchanged."""
        folders = [*map(Path, self.folders)]
        not_spelt_out = set[str]().union(*self._seen.values())
        to_check = not_spelt_out.intersection(self.loaded.get(name, ()))
        return all(find(each, folders) == self.files[each] for each in to_check)

    def load(self, name: str) -> Plugin:
        """Load a module whose files are known."""
        if name not in self.loaded:
            before, self._loading = self._loading, name
            try:
                importlib.import_module(f"{self.name}.{name}")
            finally:
                self._loading = before
            began = {each: self.files[each] for each in candidates(name)}
            self.loaded[name] = frozenset(reachable_modules(began, self.files.get, self._seen))
        return Plugin(
            self.name, name, self.folders, {each: self.files[each] for each in sorted(self.loaded[name])}
        )

    def has(self, top: str) -> bool:
        """Return whether `import top` means a module of this space."""
        return top not in SHARED and (top in self.files or self._find(top) is not None)

    def _find(self, name: str) -> File | None:
        return find(name, [*map(Path, self.folders)]) if self.live else None

    def require(self, importer: str, names: Iterable[str]) -> None:
        """Note the names that a module imports but does not spell out in its source.

        Raises PluginError: the module does so while it runs, when its identity is already fixed.
        """
        spelt = imported_names(importer, self.files[importer]) if importer in self.files else set()
        for name in names:
            if name not in spelt and self.file(name) is not None:
                self._note(importer, name)

    def file(self, name: str) -> File | None:
        """Return the file of a module of this space, read now if it was not before, or None."""
        file = None if name in self.files else self._find(name)
        if file is not None:
            self.files |= reachable_modules({**self.files, name: file}, _Lookup([*map(Path, self.folders)]))
        return self.files.get(name)

    def _note(self, importer: str, name: str) -> None:
        module = sys.modules.get(f"{self.name}.{importer}")
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            self._seen.setdefault(importer, set()).add(name)
        elif self._loading is not None:
            self._seen.setdefault(self._loading, set()).add(name)
        elif any(name not in known for known in self.loaded.values() if not importer or importer in known):
            raise PluginError(
                f"{importer or 'a plugin'} imports {name} while it runs, by a name that its source does not"
                " spell out, so that results of two versions could not be distinguished. Import it at the top"
                " of the file."
            )

    def importer(self, module: str) -> Callable[..., ModuleType]:
        """Return the `__import__` of a module of this space."""

        # the arguments have Python's names, since code may give them by name
        def imported(
            name: str,
            globals: Any = None,  # noqa: A002
            locals: Any = None,  # noqa: A002
            fromlist: Any = (),
            level: int = 0,
        ) -> ModuleType:
            own_name = self._own_name(name, level, globals or {})
            if own_name is None:
                module_found = _PYTHON(name, globals, locals, fromlist, level)
                return _Importlib(self, module) if module_found is importlib else module_found
            self.require(module, candidates(own_name, tuple(each for each in fromlist or () if each != "*")))
            if level:
                return _PYTHON(name, globals, locals, fromlist, level)
            module_found = _PYTHON(f"{self.name}.{name}", globals, locals, fromlist, 0)
            return module_found if fromlist else sys.modules[f"{self.name}.{name.partition('.')[0]}"]

        # torch.compile must not trace into this when a compiled function imports something
        vars(imported)["_torchdynamo_disable"] = True
        return imported

    def _own_name(self, name: str, level: int, globals_: Mapping[str, Any]) -> str | None:
        """Return the name in this space of an imported module; None if another module is meant."""
        if level:
            absolute = resolve_name("." * level + name, globals_.get("__package__"))
            return absolute.removeprefix(self.name).removeprefix(".")
        return name if self.has(name.partition(".")[0]) else None


class _Importlib(ModuleType):
    """The `importlib` of a module of a space, where names mean the same as in `import`."""

    def __init__(self, space: Space, module: str) -> None:
        super().__init__("importlib")
        self._space, self._module = space, module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """Import a module as importlib does."""
        absolute = resolve_name(name, package) if name.startswith(".") else name
        space = self._space
        if absolute.startswith(f"{space.name}."):
            absolute = absolute.removeprefix(f"{space.name}.")
        elif not space.has(absolute.partition(".")[0]):
            return importlib.import_module(absolute)
        space.require(self._module, candidates(absolute))
        return importlib.import_module(f"{space.name}.{absolute}")


_SPACES: dict[str, Space] = {}


def _space(folders: tuple[str, ...], name: str, files: dict[str, File]) -> Space:
    """Return the latest space of these folders whose files are as they are now, or a new one."""
    current = []
    for known in _SPACES.values():
        if known.folders == folders and known.agrees(files) and known.is_current(name):
            current.append(known)
    loaded = [known for known in current if name in known.loaded]
    space = next(iter(loaded + current[::-1]), None)
    if space is None:
        new = _fresh(folders)
        space = _SPACES[new] = Space(new, folders, live=True)
    space.live = True  # files that another process sent exist here, too
    space.files = files | space.files
    return space


def _fresh(folders: tuple[str, ...]) -> str:
    """Return a name for a new space. Another process that reads the same files in order finds the same."""
    number = sum(space.folders == folders for space in _SPACES.values())
    return f"{PREFIX}{digest_of(json.dumps([folders, number]).encode())[:16]}"


class _Finder(MetaPathFinder):
    """A finder of modules in spaces."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        prefix, _, name = fullname.partition(".")
        space = _SPACES.get(prefix) if prefix.startswith(PREFIX) else None
        if space is None or not name:
            return None
        if name not in space.files:
            space.require("", [name])
        file = space.files.get(name)
        if file is None:  # otherwise Python would look in the folder of the package
            raise ModuleNotFoundError(f"No module named {name!r}", name=fullname)
        return _spec(fullname, name, file, space)


def _spec(fullname: str, name: str, file: File, space: Space) -> ModuleSpec | None:
    folders = [str(file.folder)] if file.package else None
    if file.content is None:
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = folders
        return spec
    loader: ExtensionFileLoader | _Loader
    if file.compiled:
        loader = ExtensionFileLoader(fullname, file.path)
    else:
        loader = _Loader(fullname, file, space.importer(name))
    return spec_from_file_location(fullname, file.path, loader=loader, submodule_search_locations=folders)


class _Loader(SourceFileLoader):
    """A loader that runs the source that was read, not the present file or bytecode beside it."""

    def __init__(self, fullname: str, file: File, importer: Callable[..., ModuleType]) -> None:
        super().__init__(fullname, file.path)
        self._source, self._importer = file.content or b"", importer

    def get_data(self, path: str) -> bytes:
        """Return the source that was read; other files are read now."""
        return self._source if path == self.path else super().get_data(path)

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source that was read."""
        return self.source_to_code(self._source, self.path)

    def exec_module(self, module: ModuleType) -> None:
        """Run the source with the imports of the space."""
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._importer}
        super().exec_module(module)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return None, for an ordinary module, and keep its lines for tracebacks and for Triton."""
        self.get_code(spec.name)  # first, so that a syntax error is reported with its line
        text = self.get_source(spec.name) or ""
        linecache.cache[self.path] = (len(text), None, text.splitlines(keepends=True), self.path)
        return None


sys.meta_path.insert(0, _Finder())
