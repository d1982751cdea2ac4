"""Where results are kept: one file per cell, written whole or not at all, never trusted unread."""

import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from linbench.cell import SCHEMA, canonical, digest
from linbench.common.errors import StorageError
from linbench.common.files import LEFTOVER, UnfitFileError, inside, read_regular, try_named, write_whole
from linbench.common.laws import Law
from linbench.common.reading import read_json
from linbench.rescore import rescored
from linbench.schema import CELL as CELL
from linbench.schema import DRAW as DRAW
from linbench.schema import OPERATION as OPERATION
from linbench.schema import RECORDS, misfit
from linbench.schema import SPEED as SPEED
from linbench.schema import STEP as STEP

Result = dict[str, Any]
"""What a cell measured, as plain JSON values; see `linbench.measure` for what is in it. What a benchmark measured has a `kind` and other things in it: see
`linbench.benchmark.measured`. `linbench.schema` has the fields of both, which hold for every result that a store gives."""

BENCHED = (OPERATION, STEP, DRAW)
"""What is timed beside layers."""

DIVERGED = "diverged"
"""The status of a run that ended in no numbers; it counts as chance."""

FINAL = ("ok", DIVERGED)
"""Statuses that say something of the model; a cell with another is tried again when that is asked for, or when it came from outside."""

_OUTSIDE = ("its process died with SIGKILL", "its process died with SIGTERM", "its worker was lost", "its worker lost it", "3 times over: ")
"""How the reasons of results begin that were lost with their worker before results said so."""

UNDERTRAINED = "undertrained"
"""The mark of a result that was still getting better when its training ended."""

EDGE = "lr_edge"
"""The mark of a result whose learning rate lies on the edge of all that were tried."""

UNTRIED = "lr_untried"
"""The mark of a result beside whose learning rate another could not be tried, as a run failed."""

UNPROBED = "unprobed"
"""The mark of a result whose layer is not shipped and could not be probed for the laws that it must keep."""

UNLAWFUL = (*(law.value for law in Law), UNPROBED)
"""Marks of results of layers that break a law, or may: whatever they score says nothing."""

NO_VERDICT = (UNDERTRAINED, EDGE, UNTRIED, *UNLAWFUL)
"""Marks of results that take part in none."""

_FILE = re.compile(r"[0-9a-f]{64}\.json")
_ASIDE = ".unreadable"
_STALE_SECONDS = 3600


def from_outside(result: Result) -> bool:
    """Return whether what ended a cell was nothing of its own, such as a worker that was killed; then it is tried again whenever it is asked for."""
    if result["status"] in FINAL:
        return False
    told: bool | None = result.get("outside")
    return told if told is not None else str(result.get("reason")).startswith(_OUTSIDE)


def benched(kept: Mapping[str, Sequence[Result]]) -> list[Result]:
    """Of results by kind those of all that are `BENCHED`."""
    return [result for kind in BENCHED for result in kept[kind]]


def fingerprint(results: Iterable[Result]) -> str:
    """A hash of all that was measured, each result once: what is drawn or written from it carries this."""
    return digest(sorted(digest(result) for result in {one["id"]: one for one in results}.values()))


class Store:
    """A folder of result files named by their cells' ids, or those of what benchmarks measured."""

    def __init__(self, folder: str | Path, option: str = "--results") -> None:
        self.folder, self.option = Path(folder), option
        """`option`: by which the user has named the folder."""
        self.set_aside: dict[Path, str] = {}
        """Files that do not count, found since this store was opened, each with the reason. They go by their present names: one whose cell is run again gets
        another name, and stays."""

    read_only = False
    """Whether nothing may be written there."""

    def may_add(self) -> None:
        """See that results may be added, before anything is spent on them; `prepare` sees whether they can be."""

    def prepare(self) -> None:
        """Make the folder and see that it can be written, before anything is spent on what could not be kept.

        Raises StorageError.
        """
        with storage_sentence(self.folder, "cannot keep results in"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._locks.mkdir(exist_ok=True)
            for leftover in self.folder.glob(f"{LEFTOVER}*"):  # of a writer that was killed, or at work and done meanwhile
                with suppress(OSError):  # one that cannot be removed, such as a folder of that name, is in nobody's way
                    if time.time() - leftover.lstat().st_mtime > _STALE_SECONDS:
                        leftover.unlink()
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=LEFTOVER) as probe:
                probe.write(b"\0")
                probe.flush()

    def get(self, cell_id: str) -> Result | None:
        """The result of a cell, or None, as for one of an older schema. A file that is torn, altered or misnamed, that may not be read, or that does not fit
        the record of a result is set aside with the reason, so that its cell runs again. It stays as it is, since who reads may not be who writes here.
        A result of an older code has the score that `rescored` gives it.

        Raises StorageError: the system fails to read the file, or it comes from a newer linbench.
        """
        path = self._path(cell_id)
        found = _read(path, cell_id)
        if isinstance(found, str):
            self.set_aside.setdefault(path, found)
            return None
        return found if found is None else rescored(found)

    def put(self, result: Result) -> Path:
        """Keep a result: written aside, flushed to the disk, then renamed. What stands in its place and does not count is kept under another name.

        Raises StorageError; nothing is left behind then. Raises ValueError: this is not a result as `linbench.schema` has it.
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
                raise StorageError(f"there is no results folder {self.folder}; `linbench run` makes one, {self.option} names another.")
            names = sorted(path.name for path in self.folder.iterdir())
        found = (self.get(name.removesuffix(".json")) for name in names if _FILE.fullmatch(name))
        kinds: dict[str, list[Result]] = {kind: [] for kind in RECORDS}
        for result in found:
            if result is not None:
                kinds[result.get("kind", CELL)].append(result)
        return kinds

    @property
    def unreadable(self) -> list[Path]:
        """All files that were ever set aside, and those that would be."""
        return sorted({*self.folder.glob(f"*{_ASIDE}-*"), *self.set_aside})

    @contextmanager
    def claim(self, cell_id: str) -> Iterator[bool]:
        """Whether this process may run the cell now; another launcher on the same folder may have it. A killed holder's claim is free."""
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
    """The result in a file without its checksum; None: there is no file, or it is of an older schema. A text: why it does not count.

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
        raise StorageError(f"{path} was written by a newer linbench (schema {schema}, this one knows {SCHEMA}); update linbench.")
    return None if schema < SCHEMA else misfit(result) or result


def _sound(text: bytes, cell_id: str) -> Result | None:
    """The result of that cell without its checksum. None: the text is torn, altered, or another's."""
    try:
        result: Result = read_json(text)
        checksum = result.pop("checksum")
        return result if checksum == (_written_digest(text) or digest(result)) and result["id"] == cell_id else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


_CHECKSUM = re.compile(rb'"checksum":"([0-9a-f]{64})",')


def _written_digest(text: bytes) -> str | None:
    """The digest of what was written beside the checksum, where it stands there as it was made of; to write it all down anew takes a third of the time of
    reading. None: it is written in another way, or altered."""
    found = _CHECKSUM.search(text)
    made = hashlib.sha256(text[: found.start()] + text[found.end() :]).hexdigest() if found else ""
    return made if found and made.encode() == found[1] else None


def rate_of(result: Result) -> float:
    """Its learning rate."""
    return float(result["cell"]["protocol"]["settings"]["lr"])


def seed_of(result: Result) -> int:
    """Its seed."""
    return int(result["cell"]["seed"])


STATE = ("recurrent", "cache", "convolution", "shift")
"""What a state is made of."""


def size_of(result: Result) -> dict[str, Any]:
    """Parameters, floats of the state and of what it is made, operations per token; None of what its model does not say, or where it was never built."""
    model = result["model"]
    state = model.get("state") or {}
    parts = {f"state_{part}": state.get(part) for part in ("total", *STATE)}
    return {"parameters": model.get("parameters"), **parts, "flops_per_token": model.get("flops_per_token")}


def below(folder: Path) -> list[Store]:
    """Return a store for each folder with result files, this one and those in it, in the order of their names. A folder that may not be read is set aside by
    the first of them."""
    unreadable: dict[Path, str] = {}

    def note(error: OSError) -> None:
        if error.errno in _NOT_OURS:
            unreadable[Path(error.filename)] = f"the folder cannot be read: {error.strerror}"

    there = [Path(place) for place, folders, files in os.walk(folder, onerror=note) if any(map(_FILE.fullmatch, (*folders, *files)))]
    stores = [Store(path) for path in sorted(there)] or [Store(folder)] * bool(unreadable)
    for store in stores[:1]:
        store.set_aside |= unreadable
    return stores


@contextmanager
def storage_sentence(path: Path, doing: str, option: str = "--results") -> Iterator[None]:
    """The operating system's refusal as one sentence; `option`: by which the user can name another place. Raises StorageError."""
    reasons = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is used up", errno.EROFS: "it is read-only", errno.EACCES: "permission denied"}
    reasons |= {errno.ENOENT: "its folder is not there"}
    try:
        yield
    except OSError as error:
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        remedy = {errno.ENOENT: "make it or ", errno.ENAMETOOLONG: ""}.get(error.errno or 0, "free it or ")
        raise StorageError(f"{doing} {path}: {reason}; {remedy}choose another folder with {option}.") from error


def folder_below(folder: Path, name: str, option: str = "--save") -> Path:
    """Return the path of what lies in a folder of results under that name. Raises StorageError: it is a link that leads out of it."""
    with storage_sentence(folder, "cannot write into", option):
        return inside(folder, name)


def check_writable(path: Path, doing: str, option: str) -> None:
    """See that a file which will be long in the making can be written; it is left as it was. Raises StorageError: it cannot."""
    with storage_sentence(path, doing, option):
        try_named(path)


def _acquired(lock: BaseFileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:  # an OSError to Python, but no refusal of the system
        return False
    return True
