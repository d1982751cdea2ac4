"""The results that come with linbench.

Every option that takes a folder of results knows them by the name `reference`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from linbench.common.errors import UserError, nearest
from linbench.common.files import folder_below
from linbench.results.folders import find_stores, without_submissions
from linbench.results.packs import Line
from linbench.results.record import FINAL, add_result, benchmark_results, no_results
from linbench.results.schema import Result, ResultsByKind
from linbench.results.schema.fields import CELL, PROBE, SPEED, SWEEP
from linbench.results.store import Store
from linbench.results.submission import Submission, is_submission

REFERENCE = "reference"
"""The name of these results on the command line. A folder of that name is given by its absolute path."""

SHIPPED = ("cpu", "h100", "h200")
"""The shipped folders; all folders below them belong to them."""


class Reference(Store):
    """All results that come with linbench, as one read-only store."""

    read_only = True

    def __init__(self, option: str = "--results") -> None:
        super().__init__(_home(), option)
        self.parts = _stores()
        for part in self.parts:
            part.set_aside = self.set_aside  # one list: what any part sets aside

    def prepare(self) -> None:
        """Do nothing: nothing is written here."""

    def find(self, result_id: str) -> Result | None:
        """Return the result of an id, or None. Raises StorageError: it is there and cannot be read."""
        results = (part.find(result_id) for part in self.parts)
        return next((result for result in results if result is not None), None)

    def by_kind(self) -> ResultsByKind:
        """Return every sound result by kind, in the order of their ids, each once.

        Raises StorageError: a file is there and cannot be read.
        """
        latest: dict[str, Result] = {}
        for part in self.parts:
            results = part.by_kind()
            others = [*results[SPEED], *benchmark_results(results), *results[SWEEP], *results[PROBE]]
            for result in [*results[CELL], *others]:
                latest[result["id"]] = result
        merged = no_results()
        for _, result in sorted(latest.items()):
            add_result(merged, result)
        return merged

    def packed_lines(self) -> Mapping[str, Sequence[Line]]:
        """Return the lines of all packs by the ids of their results.

        Raises StorageError: the system fails to read a pack.
        """
        found: dict[str, list[Line]] = {}
        for part in self.parts:
            for cell_id, lines in part.packed_lines().items():
                found.setdefault(cell_id, []).extend(lines)
        return found

    def may_add(self) -> None:
        """Refuse to add anything. Raises UserError: always."""
        raise UserError(
            "not all results that are needed come with linbench, and those that do are read-only; name a"
            f" folder of yours with {self.option}."
        )

    def put(self, result: Result) -> Path:
        """Refuse to add a result. Raises UserError: always."""
        self.may_add()
        return self.folder

    @contextmanager
    def claim(self, cell_id: str) -> Iterator[bool]:
        """Claim a cell that has a result, so that whoever asks for it goes on.

        Raises UserError: it would have to be run.
        """
        result = self.find(cell_id)
        if result is None or result["status"] not in FINAL:
            self.may_add()
        yield True

    @property
    def unreadable(self) -> list[Path]:
        """The files that could not be trusted."""
        return sorted({path for part in self.parts for path in part.unreadable})


def store_at(folder: str | Path, option: str = "--results", *, others: Sequence[Store] = ()) -> Store:
    """Return the store in a folder or submission, or for `reference` the results that come with linbench.

    Args:
        others: stores in which a result is looked for that the folder lacks.
    """
    if str(folder) == REFERENCE:
        return Reference(option)
    return Submission(folder, option) if is_submission(Path(folder)) else Store(folder, option, others=others)


def stores_below(folder: str | Path) -> list[Store]:
    """Return a store for each folder with results, this one and those below.

    `reference` names the folders that come with linbench.
    """
    return _stores() if str(folder) == REFERENCE else find_stores(Path(folder))


def stores_at(name: str) -> list[Store]:
    """Return `stores_below` a folder, but for submissions, which nobody has run again.

    Raises UserError: there is none.
    """
    found = without_submissions(stores_below(name))
    if not found:
        hint = "" if Path(name).exists() else nearest(name, {REFERENCE: REFERENCE})
        raise UserError(
            f"there are no results in {name} to compare against;"
            f" {hint or f'name a folder that has some, or {REFERENCE}.'}"
        )
    return found


def place_beside(folder: Path, name: str, option: str) -> Path:
    """Return the path below a results folder where what is made of it goes, when the user names no other.

    Raises UserError: it is `reference` or a submission, which are read-only. StorageError: the place is a
    link that leads out of the folder.
    """
    if str(folder) == REFERENCE:
        raise UserError(
            f"the results that come with linbench are read-only; say with {option} where to write."
        )
    if is_submission(folder):
        raise UserError(
            f"{folder} is a submission, and these are read-only; say with {option} where to write."
        )
    return folder_below(folder, name, option)


def _home() -> Path:
    return Path(__file__).resolve().parents[1] / REFERENCE


def _stores() -> list[Store]:
    return [store for kind in SHIPPED for store in find_stores(_home() / kind)]
