"""Where results are kept: one file per cell, written whole or not at all, never trusted unread."""

import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from linbench.common.errors import StorageError
from linbench.common.files import LEFTOVER, UnfitFileError, read_regular, storage_sentence, write_whole
from linbench.common.hashing import canonical, digest
from linbench.common.reading import read_json
from linbench.experiments.cell import SCHEMA
from linbench.results.record import Result
from linbench.results.rescore import rescored
from linbench.results.schema import RECORDS, misfit
from linbench.results.schema.fields import CELL as CELL
from linbench.results.schema.fields import DRAW as DRAW
from linbench.results.schema.fields import OPERATION as OPERATION
from linbench.results.schema.fields import SPEED as SPEED
from linbench.results.schema.fields import STEP as STEP

_FILE = re.compile(r"[0-9a-f]{64}\.json")
_ASIDE = ".unreadable"
_STALE_SECONDS = 3600


class NewerResultError(StorageError):
    """A result file of a schema that this linbench does not know. Whoever would write in its place must not;
    whoever reads many passes it over."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be used: {reason}.")
        self.reason = reason


class Store:
    """A folder of result files named by their cells' ids, or those of what benchmarks measured."""

    def __init__(self, folder: str | Path, option: str = "--results") -> None:
        self.folder, self.option = Path(folder), option
        """`option`: by which the user has named the folder."""
        self.set_aside: dict[Path, str] = {}
        """Files that do not count, found since this store was opened, each with the reason. They go by their
        present names: one whose cell is run again gets another name, and stays."""

    read_only = False
    """Whether nothing may be written there."""

    def may_add(self) -> None:
        """See that results may be added, before anything is spent on them; `prepare` sees whether they can
        be."""

    def prepare(self) -> None:
        """Make the folder and see that it can be written, before anything is spent on what could not be kept.

        Raises StorageError.
        """
        with storage_sentence(self.folder, "cannot keep results in"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._locks.mkdir(exist_ok=True)
            # of a writer that was killed, or at work and done meanwhile
            for leftover in self.folder.glob(f"{LEFTOVER}*"):
                # one that cannot be removed, such as a folder of that name, is in nobody's way
                with suppress(OSError):
                    if time.time() - leftover.lstat().st_mtime > _STALE_SECONDS:
                        leftover.unlink()
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=LEFTOVER) as probe:
                probe.write(b"\0")
                probe.flush()

    def get(self, cell_id: str) -> Result | None:
        """The result of a cell, or None, as for one of an older schema. A file that is torn, altered or
        misnamed, that may not be read, or that does not fit the record of a result is set aside with the
        reason, so that its cell runs again. It stays as it is, since who reads may not be who writes here. A
        result of an older code has the score that `rescored` gives it.

        Raises StorageError: the system fails to read the file, or it comes from a newer linbench.
        """
        path = self._path(cell_id)
        found = _read(path, cell_id)
        if isinstance(found, str):
            self.set_aside.setdefault(path, found)
            return None
        return found if found is None else rescored(found)

    def put(self, result: Result) -> Path:
        """Keep a result: written aside, flushed to the disk, then renamed. What stands in its place and does
        not count is kept under another name.

        Raises StorageError; nothing is left behind then. Raises ValueError: this is not a result as
        `linbench.results.schema` has it.
        """
        path = self._path(result["id"])
        text = canonical({**result, "checksum": digest(result)})
        if wrong := misfit(result):
            raise ValueError(f"a result cannot be kept: {wrong}")
        if isinstance(why := _read(path, result["id"]), str):
            self._put_aside(path, why)
        with storage_sentence(self.folder, "cannot keep results in"):
            write_whole(path, text.encode())
        return path

    def all(self, kind: str = CELL) -> list[Result]:
        """Every sound result of a kind, in the order of their ids."""
        return self.by_kind()[kind]

    def by_kind(self) -> dict[str, list[Result]]:
        """Return every sound result by kind, in the order of their ids; each file is read once.

        Raises StorageError: there is no such folder, or it cannot be read.
        """
        with storage_sentence(self.folder, "cannot read results in", self.option):
            if not self.folder.is_dir():
                raise StorageError(
                    f"there is no results folder {self.folder}; `linbench run` makes one, {self.option} names"
                    " another."
                )
            names = sorted(path.name for path in self.folder.iterdir())
        kinds: dict[str, list[Result]] = {kind: [] for kind in RECORDS}
        for name in (name for name in names if _FILE.fullmatch(name)):
            try:
                result = self.get(name.removesuffix(".json"))
            except NewerResultError as newer:  # one such file must not keep the others from being read
                self.set_aside.setdefault(self.folder / name, newer.reason)
                continue
            if result is not None:
                kinds[result.get("kind", CELL)].append(result)
        return kinds

    @property
    def unreadable(self) -> list[Path]:
        """All files that were ever set aside, and those that would be."""
        return sorted({*self.folder.glob(f"*{_ASIDE}-*"), *self.set_aside})

    @contextmanager
    def claim(self, cell_id: str) -> Iterator[bool]:
        """Whether this process may run the cell now; another launcher on the same folder may have it. A
        killed holder's claim is free."""
        lock = FileLock(self._locks / f"{cell_id}.lock")
        with storage_sentence(self._locks, "cannot claim a cell in"):
            ours = _acquired(lock)
        try:
            yield ours
        finally:
            lock.release()

    @property
    def checkpoints(self) -> Path:
        """Where groups that are not finished are kept."""
        return self.folder / ".checkpoints"

    @property
    def _locks(self) -> Path:
        return self.folder / ".locks"

    def _path(self, cell_id: str) -> Path:
        return self.folder / f"{cell_id}.json"

    def _put_aside(self, path: Path, why: str) -> None:
        number = sum(1 for _ in path.parent.glob(f"{path.name}{_ASIDE}*"))
        aside = path.with_name(f"{path.name}{_ASIDE}-{number}")
        with storage_sentence(path, "cannot set aside"):
            try:
                path.rename(aside)
            except FileNotFoundError:  # another writer was quicker
                return
        self.set_aside.pop(path, None)
        self.set_aside[aside] = why


UNREADABLE = "it is torn, altered or not its own"
"""Why a file does not count whose text is not what was written under its name."""

_NOT_OURS = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
"""Refusals of the system that concern one file, and are no fault of the disk."""


def _read(path: Path, cell_id: str) -> Result | str | None:
    """The result in a file without its checksum; None: there is no file, or it is of an older schema. A text:
    why it does not count.

    Raises StorageError: the system fails to read it, or it comes from a newer linbench.
    """
    with storage_sentence(path, "cannot read"):
        try:
            text = read_regular(path)
        except FileNotFoundError:
            return None
        except UnfitFileError as unfit:
            return str(unfit.strerror)
        except OSError as error:
            if error.errno in _NOT_OURS:
                return f"it cannot be read: {error.strerror}"
            raise
    result = _sound(text, cell_id)
    if result is None:
        return UNREADABLE
    schema = result.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int):
        return "schema should be a whole number"
    if schema > SCHEMA:
        raise NewerResultError(
            path,
            f"it was written by a newer linbench (schema {schema}, this one knows {SCHEMA}); update linbench",
        )
    return None if schema < SCHEMA else misfit(result) or result


def _sound(text: bytes, cell_id: str) -> Result | None:
    """The result of that cell without its checksum. None: the text is torn, altered, or another's."""
    try:
        result: Result = read_json(text)
        checksum = result.pop("checksum")
        return (
            result
            if checksum == (_written_digest(text) or digest(result)) and result["id"] == cell_id
            else None
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


_CHECKSUM = re.compile(rb'"checksum":"([0-9a-f]{64})",')


def _written_digest(text: bytes) -> str | None:
    """The digest of what was written beside the checksum, where it stands there as it was made of; to write
    it all down anew takes a third of the time of reading. None: it is written in another way, or altered."""
    found = _CHECKSUM.search(text)
    made = hashlib.sha256(text[: found.start()] + text[found.end() :]).hexdigest() if found else ""
    return made if found and made.encode() == found[1] else None


def below(folder: Path) -> list[Store]:
    """Return a store for each folder with result files, this one and those in it, in the order of their
    names. A folder that may not be read is set aside by the first of them."""
    unreadable: dict[Path, str] = {}

    def note(error: OSError) -> None:
        if error.errno in _NOT_OURS:
            unreadable[Path(error.filename)] = f"the folder cannot be read: {error.strerror}"

    there = [
        Path(place)
        for place, folders, files in os.walk(folder, onerror=note)
        if any(map(_FILE.fullmatch, (*folders, *files)))
    ]
    stores = [Store(path) for path in sorted(there)] or [Store(folder)] * bool(unreadable)
    for store in stores[:1]:
        store.set_aside |= unreadable
    return stores


def _acquired(lock: BaseFileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:  # an OSError to Python, but no refusal of the system
        return False
    return True
