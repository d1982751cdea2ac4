"""Submissions: the results of one layer and its source in one file, which anyone can read beside their own.

A submission is a zip of two files. `results.jsonl.xz` holds results as a pack does
(`linbench.results.packs`). `submission.json` says which layer they are of and how they were measured, and
holds the layer's source. It has the SHA-256 of the results, and that of all else it says: the submission's
hash, by which it is named. So nobody can change one and keep its name. What it cannot show is that its author
ran what it says: the labels of its models say that nobody has run them again.
"""

import hashlib
import io
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from linbench.common.errors import StorageError, UserError
from linbench.common.files import file_name, storage_sentence, write_named
from linbench.common.hashing import canonical, digest
from linbench.common.reading import read_json
from linbench.common.text import pluralize
from linbench.experiments.loading import is_location
from linbench.experiments.pattern import parse_pattern
from linbench.experiments.plugins.spaces import digest_of_modules
from linbench.results.packs import Line, PackError, compressed, decompressed, lines_by_id
from linbench.results.record import is_cell
from linbench.results.result_text import NewerResultError, read_file
from linbench.results.schema import Result
from linbench.results.schema.cells import CellResult
from linbench.results.store import Store
from linbench.results.thin import thin_texts

ENDING = ".submission.zip"
"""The end of the names of submissions."""

RESULTS, ABOUT = "results.jsonl.xz", "submission.json"
"""The names of the two files in a submission."""

NOT_RERUN = "submitted as {hash}, not rerun"
"""The mark of the models of a submission."""

_MARKED = re.compile(r" \(submitted as [0-9a-f]+, not rerun\)$")

MARK_DIGITS = 6
"""The digits of the hash in the mark."""

NAMED = 12
"""The digits of the hash in the name of a submission."""

_DATE = (1980, 1, 1, 0, 0, 0)
"""The date of both files, so that the same results make the same bytes."""


class Statement(TypedDict):
    """Statement of the author of a submission.

    Fields:
        layer: the label of its model.
        suite: the suite that it was measured with.
        command: the command that measured it.
        linbench: the version of linbench.
        sources: for each layer that is not installed its modules by their names.
    """

    layer: str
    suite: str
    command: str
    linbench: str
    sources: dict[str, dict[str, str]]


class About(Statement):
    """Contents of a submission as it describes them: the statement, and hashes.

    Fields:
        rows: the number of results.
        results: the SHA-256 of the file of results.
        hash: the SHA-256 of all other fields, the submission's hash.
    """

    rows: int
    results: str
    hash: str


class _Content(NamedTuple):
    """The content of a submission: what it says of itself, and its results as lines of a pack."""

    about: About
    lines: Sequence[bytes]


class Submission(Store):
    """A submission as a store that is only read.

    What it holds is read when it is first asked for. A damaged one has no results, and is set aside.
    """

    read_only = True

    def prepare(self) -> None:
        """Do nothing: nothing is written here."""

    def may_add(self) -> None:
        """Refuse to add anything. Raises UserError: always."""
        raise UserError(f"{self.folder} is a submission, and these are read-only; name a folder of yours.")

    def put(self, result: Result) -> Path:
        """Refuse to add a result. Raises UserError: always."""
        self.may_add()
        return self.folder

    @contextmanager
    def claim(self, cell_id: str) -> Iterator[bool]:
        """Refuse to run anything. Raises UserError: always."""
        self.may_add()
        yield False

    @property
    def about(self) -> About | None:
        """The description of the submission; None if it is damaged."""
        return self._content.about if isinstance(self._content, _Content) else None

    def loose_ids(self) -> set[str]:
        """Return none: results are in a pack."""
        return set()

    def packed_lines(self) -> Mapping[str, Sequence[Line]]:
        """Return the lines of the results by their ids. Raises StorageError: the system cannot read them."""
        return self._lines

    def faults(self) -> list[str]:
        """Return a sentence for everything that is wrong with the submission; none if all is sound.

        Raises StorageError: the system fails to read it.
        """
        self.all()
        wrong = [f"{place} does not count: {why}." for place, why in self.set_aside.items()]
        if isinstance(self._content, _Content) and self._content.about["rows"] != len(self._content.lines):
            about, lines = self._content
            count = pluralize(len(lines), "result")
            wrong.append(f"{self.folder} has {count}, and {ABOUT} in it says {about['rows']}.")
        return wrong

    @cached_property
    def _content(self) -> _Content | str:
        """The content, or the reason why the submission does not count."""
        try:
            return _read(self.folder)
        except _DamagedError as damaged:
            self.set_aside[self.folder] = damaged.reason
            return damaged.reason

    @cached_property
    def _lines(self) -> dict[str, Sequence[Line]]:
        if isinstance(self._content, str):
            return {}
        found = lines_by_id(self.folder, self._content.lines, self.set_aside)
        return {name: [line] for name, line in found.items()}

    def _loose(self, cell_id: str) -> Result | None:
        return None

    def _packed(self, cell_id: str) -> Result | None:
        """Return a result with the mark in its label, so that no table takes it for anyone else's.

        One that is not of the submission's layer is set aside.
        """
        about = self.about
        try:
            found = super()._packed(cell_id)
        except NewerResultError as newer:
            self.set_aside.setdefault(newer.place, newer.reason)
            return None
        if found is None or about is None:
            return None
        if why := _unfit(found, about):
            self.set_aside.setdefault(self._lines[cell_id][0].place, why)
            return None
        return cast("Result", {**found, "label": marked(found["label"], about)})


def _unfit(result: Result, about: About) -> str | None:
    """Return why a result is not one of the submission's layer; None if it is."""
    if not is_cell(result):
        return "it is no result of a trained model"
    if result["label"] != about["layer"]:
        return f"it is of {result['label']}, and the submission is of {about['layer']}"
    of_users = {layer["mixer"]: layer["source"] for layer in result["cell"]["model"]["layers"]}
    try:
        named = {term.name.removeprefix("./") for term in parse_pattern(about["layer"])}
    except UserError:
        return "the submission is of no layer"
    for mixer, source in of_users.items():
        if source is not None and mixer not in named:
            return f"it is of {mixer}, which its label does not name"
        modules = {name: text.encode() for name, text in about["sources"].get(mixer, {}).items()}
        if modules and source not in {digest_of_modules(name, modules) for name in modules}:
            return f"{mixer} in it has another source than the submission"
    if missing := [name for name in named if is_location(name) and name not in of_users]:
        return f"its label names {missing[0]}, which is none of its layers"
    return None


def marked(label: str, about: About) -> str:
    """Return the label of a model of a submission."""
    return f"{label} ({NOT_RERUN.format(hash=about['hash'][:MARK_DIGITS])})"


def is_marked(label: str) -> bool:
    """Return whether a label is that of a model of a submission."""
    return _MARKED.search(label) is not None


def is_submission(path: Path) -> bool:
    """Return whether a path is a file that has the name of a submission."""
    return path.name.endswith(ENDING) and path.is_file()


class _DamagedError(Exception):
    """A submission that does not count, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def write_submission(folder: Path, statement: Statement, results: Sequence[CellResult]) -> Submission:
    """Write a submission and read it back. Its name is its class's with the first digits of its hash.

    Args:
        folder: where it is written.
        statement: what its author states.
        results: all results of the layer in the suite, those of searches and rungs among them.

    Raises:
        UserError: there are more results than a pack may have.
        StorageError: it cannot be written, or is not read back as it was written.
    """
    _, content = compressed(zip(results, thin_texts(results), strict=True))
    said = {**_plain(statement), "rows": len(results), "results": hashlib.sha256(content).hexdigest()}
    about = {**said, "hash": digest(said)}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as zipped:
        zipped.writestr(zipfile.ZipInfo(ABOUT, _DATE), canonical(about))
        zipped.writestr(zipfile.ZipInfo(RESULTS, _DATE), content)
    path = folder / f"{_short_name(statement['layer'])}-{digest(said)[:NAMED]}{ENDING}"
    with storage_sentence(path, "cannot write", "--save"):
        write_named(path, archive.getvalue())
    written = Submission(path)
    if wrong := written.faults():
        raise StorageError(f"{path} does not read as it was written: {wrong[0]}")
    return written


def _plain(value: Any) -> Any:
    """Return a statement without surrogates, which paths may have and JSON may not."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return {_plain(name): _plain(part) for name, part in value.items()}


def _short_name(layer: str) -> str:
    """Return the name of the class, of `./mine.py:Mine[width=2]` mine, or of the first of several layers."""
    return file_name(re.split(r"[\[+]", layer)[0].rpartition(":")[2].rpartition("/")[2])


def _read(path: Path) -> _Content:
    """Read a submission. Raises _DamagedError: it does not count; StorageError: it cannot be read."""
    content = read_file(path)
    if not isinstance(content, bytes):
        raise _DamagedError(content or "it is not there")
    about_text, packed = _unzipped(content)
    try:
        about = TypeAdapter(About).validate_python(read_json(about_text), strict=True)
    except (ValueError, ValidationError) as error:
        raise _DamagedError(f"its {ABOUT} is damaged") from error
    if digest({name: value for name, value in about.items() if name != "hash"}) != about["hash"]:
        raise _DamagedError(f"its {ABOUT} was changed: the hash is another")
    if hashlib.sha256(packed).hexdigest() != about["results"]:
        raise _DamagedError(f"its {RESULTS} was changed: the SHA-256 is another")
    try:
        return _Content(about, decompressed(path, packed))
    except PackError as damaged:
        raise _DamagedError(damaged.reason) from damaged


def _unzipped(content: bytes) -> tuple[bytes, bytes]:
    """Return both files of a submission. Raises _DamagedError: it is no such zip."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as zipped:
            files = zipped.infolist()
            stored = all(one.compress_type == zipfile.ZIP_STORED for one in files)  # no bomb unpacks here
            if sorted(one.filename for one in files) != [RESULTS, ABOUT] or not stored:
                raise _DamagedError(f"it does not hold {ABOUT} and {RESULTS} as they were written")
            return zipped.read(ABOUT), zipped.read(RESULTS)
    # a damaged zip makes zipfile raise any of these
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, ValueError, struct.error) as error:
        raise _DamagedError("it is no zip file, or a damaged one") from error
