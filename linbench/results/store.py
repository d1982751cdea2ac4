"""Stores: folders of results, in loose files of one result each and in packs of many.

Files are written whole or not at all, and nothing in them is trusted unread. A loose file counts before a
line of a pack.
"""

import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from linbench.common.errors import StorageError
from linbench.common.files import LEFTOVER, storage_sentence, write_whole
from linbench.common.memory import collection_paused
from linbench.results.packs import Line, Packs
from linbench.results.record import add_result, is_benchmark, is_cell, no_results
from linbench.results.rescore import with_current_chance
from linbench.results.result_text import NewerResultError, check_text, read_file, result_text
from linbench.results.schema import Result, ResultsByKind, misfit
from linbench.results.schema.benchmarks import BenchmarkResult
from linbench.results.schema.cells import CellResult
from linbench.results.schema.fields import CELL as CELL
from linbench.results.schema.fields import DRAW as DRAW
from linbench.results.schema.fields import OPERATION as OPERATION
from linbench.results.schema.fields import PROBE as PROBE
from linbench.results.schema.fields import SPEED as SPEED
from linbench.results.schema.fields import STEP as STEP
from linbench.results.schema.fields import SWEEP as SWEEP

FILE = re.compile(r"[0-9a-f]{64}\.json")
"""The name of a file of one result."""

_ASIDE = ".unreadable"
_STALE_SECONDS = 3600


class Store:
    """A folder of results, each under the id of its cell, or of the case that a benchmark measured.

    Attributes:
        option: the option by which the user named the folder, for messages.
        set_aside: files, and lines of packs, that do not count, found since this store was opened, each with
            the reason. Files go by their present names: one whose cell is run again gets another name, and
            stays. A line of a pack goes by the pack's path, a colon and its number.
        others: stores in which a result is looked for that the folder lacks; nothing is written to them.
    """

    def __init__(
        self, folder: str | Path, option: str = "--results", *, others: Sequence["Store"] = ()
    ) -> None:
        self.folder, self.option, self.others = Path(folder), option, others
        self.set_aside: dict[Path, str] = {}
        self._packs = Packs(self.folder)

    read_only = False
    """True if nothing may be written there."""

    def may_add(self) -> None:
        """Check that results may be added, before anything is spent on them.

        Whether the folder can be written is for `prepare` to see.
        """

    def prepare(self) -> None:
        """Make the folder and check that it can be written, before anything is spent on results.

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

    def get(self, cell_id: str) -> CellResult | None:
        """Return the result of a cell, or None. Raises StorageError as `find` does."""
        result = self.find(cell_id)
        return result if result is not None and is_cell(result) else None

    def get_benchmark(self, case_id: str) -> BenchmarkResult | None:
        """Return the result of a benchmark, or None. Raises StorageError as `find` does."""
        result = self.find(case_id)
        return result if result is not None and is_benchmark(result) else None

    def find(self, result_id: str) -> Result | None:
        """Return the result of an id, of any kind; None if there is none, or only one of an older schema.

        A file that is torn, altered or misnamed, that may not be read, or that does not fit the record of a
        result is set aside with the reason; a pack's result counts then, or the cell runs again. The file
        stays as it is, since whoever reads here may not be who writes. A result of an older code has the
        score that `with_current_chance` gives it.

        Raises StorageError: the system fails to read it, or it comes from a newer linbench.
        """
        found = self._loose(result_id) or self._packed(result_id)
        if found is not None:
            return with_current_chance(found)
        return next((found for store in self.others if (found := store.find(result_id))), None)

    def put(self, result: Result) -> Path:
        """Store a result in a file of its own: write it aside, flush it to the disk, then rename it.

        A file of that name that does not count is kept under another name.

        Raises StorageError; nothing is left behind then. Raises ValueError: this is not a result as
        `linbench.results.schema` has it.
        """
        path = self._path(result["id"])
        text = result_text(result)
        if wrong := misfit(result):
            raise ValueError(f"a result cannot be kept: {wrong}")
        if isinstance(why := _read(path, result["id"]), str):
            self._put_aside(path, why)
        self._packed(result["id"])  # one of a newer linbench must not be hidden by this file
        with storage_sentence(self.folder, "cannot keep results in"):
            write_whole(path, text)
        return path

    def all(self) -> list[CellResult]:
        """Return the sound results of all cells, in the order of their ids."""
        return self.by_kind()[CELL]

    def by_kind(self) -> ResultsByKind:
        """Return every sound result by kind, in the order of their ids. Each is read once.

        Raises StorageError: there is no such folder, or it cannot be read.
        """
        loose = self.loose_ids()
        packed = self.packed_lines().keys()
        results = no_results()
        # it would look through all results again and again
        with collection_paused():
            for name in sorted(loose | packed):
                try:
                    result = (self._loose(name) if name in loose else None) or self._packed(name)
                except NewerResultError as newer:  # one such result must not keep the others from being read
                    self.set_aside.setdefault(newer.place, newer.reason)
                    continue
                if result is not None:
                    add_result(results, with_current_chance(result))
        return results

    def loose_ids(self) -> set[str]:
        """Return the ids of results in loose files. Raises StorageError: there is no such folder."""
        with storage_sentence(self.folder, "cannot read results in", self.option):
            if not self.folder.is_dir():
                raise StorageError(
                    f"there is no results folder {self.folder}; `linbench run` makes one, {self.option} names"
                    " another."
                )
            names = [path.name for path in self.folder.iterdir()]
        return {name.removesuffix(".json") for name in names if FILE.fullmatch(name)}

    def packed_lines(self) -> Mapping[str, Sequence[Line]]:
        """Return the lines of packs by the ids of their results, the newest first, not yet checked.

        Raises StorageError: the system fails to read a pack.
        """
        lines = self._packs.lines()
        for place, why in self._packs.set_aside.items():
            self.set_aside.setdefault(place, why)
        return lines

    def _loose(self, cell_id: str) -> Result | None:
        path = self._path(cell_id)
        found = _read(path, cell_id)
        if isinstance(found, str):
            self.set_aside.setdefault(path, found)
            return None
        return found

    def _packed(self, cell_id: str) -> Result | None:
        for line in self.packed_lines().get(cell_id, ()):
            found = check_text(line.text, cell_id, line.place)
            if isinstance(found, str):
                self.set_aside.setdefault(line.place, found)
            elif found is not None:
                return found
        return None

    @property
    def unreadable(self) -> list[Path]:
        """The files that were ever set aside, and those that would be."""
        return sorted({*self.folder.glob(f"*{_ASIDE}-*"), *self.set_aside})

    @contextmanager
    def claim(self, cell_id: str) -> Iterator[bool]:
        """Claim a cell; yield whether this process may run it now.

        Another launcher on the same folder may have it. The claim of a process that was killed is free.
        """
        lock = FileLock(self._locks / f"{cell_id}.lock")
        with storage_sentence(self._locks, "cannot claim a cell in"):
            ours = _acquired(lock)
        try:
            yield ours
        finally:
            lock.release()

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints of groups that are not finished."""
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


def _read(path: Path, cell_id: str) -> Result | str | None:
    """Return the result in a file.

    Returns:
        None if there is no file, or one of an older schema; a text, the reason, if the file does not count.

    Raises StorageError: the system fails to read it, or it comes from a newer linbench.
    """
    text = read_file(path)
    return check_text(text, cell_id, path) if isinstance(text, bytes) else text


def _acquired(lock: BaseFileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:  # an OSError to Python, but no refusal of the system
        return False
    return True
