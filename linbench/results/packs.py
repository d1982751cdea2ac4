"""Packs: many results of one folder in a single compressed file that is never changed.

A pack is `NAME.jsonl.xz`: one result a line, as canonical JSON with its checksum, sorted so that results
which are alike stand beside each other, since these compress well, and without the digits that follow from
the rest (`linbench.results.short_lines`). The manifest `packs.json` beside the packs lists them in the order
in which they were made, each with the number of its results, their devices and commits, the command that
measured them and the SHA-256 of the file. Where two packs have a result of the same id, the one made later
counts.
"""

import hashlib
import json
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from linbench.common.errors import StorageError, UserError
from linbench.common.files import MOST_BYTES, file_name, storage_sentence, write_whole
from linbench.common.hashing import canonical
from linbench.common.reading import read_json
from linbench.common.text import pluralize
from linbench.results.record import identity_of, is_cell
from linbench.results.result_text import UNREADABLE, NewerResultError, check_text, read_file
from linbench.results.schema import Result
from linbench.results.schema.fields import CELL
from linbench.results.short_lines import restored, shortened

SUFFIX = ".jsonl.xz"
MANIFEST = "packs.json"

MOST_TEXT = 256 << 20
"""Bytes that a pack may unpack to. The largest that is shipped has 30 MB; a hostile one could fill any
memory."""

MOST_MEMORY = 128 << 20
"""Bytes that the decompressor may use. What `write_pack` makes takes 65 MiB, most of it the dictionary."""

_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]
"""Compression made for text: a byte tells much of the next one, and its place in a word nothing."""

_ID = re.compile(rb'"id":"([0-9a-f]{64})"')
_FILE_ID = re.compile("[0-9a-f]{64}")


class Entry(TypedDict):
    """An entry of the manifest."""

    rows: int
    sha256: str
    devices: list[str]
    commits: list[str]
    command: str


class Line(NamedTuple):
    """One line of a pack, not yet checked, and its place: the pack's path, a colon and the line's number."""

    place: Path
    text: bytes


class PackError(StorageError):
    """A pack or manifest that cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be used: {reason}.")
        self.reason = reason


class Packs:
    """The packs of one folder.

    They are read when a result is first looked up, and again when there are new packs.

    Attributes:
        set_aside: packs and lines that do not count, each with the reason.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.set_aside: dict[Path, str] = {}
        self._lines: dict[str, list[Line]] | None = None
        self._state: tuple[int, ...] = ()

    def lines(self) -> Mapping[str, Sequence[Line]]:
        """Return the lines of each result by its id, those of the newest pack first.

        Raises StorageError: the system fails to read a pack.
        """
        state = self._manifest_state()
        if self._lines is None or state != self._state:
            self.set_aside.clear()
            lines = dict[str, list[Line]]()
            for path in reversed(self._ordered()):
                for name, line in self._lines_of(path).items():
                    lines.setdefault(name, []).append(line)
            self._lines, self._state = lines, state
        return self._lines

    def _ordered(self) -> list[Path]:
        """Return the paths of all packs, the oldest first; sort by name if the manifest is damaged."""
        try:
            return pack_paths(self.folder)
        except PackError as damaged:
            self.set_aside[self.folder / MANIFEST] = damaged.reason
            return _found(self.folder)

    def _lines_of(self, path: Path) -> dict[str, Line]:
        """Return the lines of one pack by the ids of their results. What does not count is set aside."""
        try:
            texts = read_lines(path)
        except PackError as damaged:
            self.set_aside[path] = f"no result of this pack counts: {damaged.reason}"
            return {}
        return lines_by_id(path, texts, self.set_aside)

    def _manifest_state(self) -> tuple[int, ...]:
        """Return what changes whenever a pack is made: `write_pack` replaces the manifest."""
        try:
            found = (self.folder / MANIFEST).stat()
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_ino, found.st_size


def pack_paths(folder: Path) -> list[Path]:
    """Return the paths of the packs in a folder in the order in which they were made.

    Packs that the manifest does not list come last, in the order of their names: whoever wrote one was killed
    before it was listed.

    Raises PackError: the manifest is damaged.
    """
    found = _found(folder)
    order = {name: place for place, name in enumerate(read_manifest(folder))} if found else {}
    return sorted(found, key=lambda path: order.get(pack_name(path), len(order)))


def _found(folder: Path) -> list[Path]:
    with storage_sentence(folder, "cannot read results in"):
        return (
            sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX)) if folder.is_dir() else []
        )


def pack_name(path: Path) -> str:
    """Return a pack's name: its file's without the suffix."""
    return path.name.removesuffix(SUFFIX)


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a pack, each as the text of a result, not yet checked.

    Raises PackError: it is no pack, is damaged or larger than `MOST_TEXT`. StorageError: the system fails to
    read it.
    """
    content = read_file(path)
    if content is None:
        raise PackError(path, "it is not there")
    if isinstance(content, str):
        raise PackError(path, content)
    return decompressed(path, content)


def decompressed(path: Path, content: bytes) -> list[bytes]:
    """Return the lines in the bytes of a pack, as `read_lines` does.

    Args:
        path: the file that the bytes come from.

    Raises PackError: they are no pack, are damaged or hold more than `MOST_TEXT`.
    """
    return [restored(line) for line in _decompress(path, content).removesuffix(b"\n").split(b"\n")]


def compressed(results: Iterable[tuple[Result, bytes]]) -> tuple[list[bytes], bytes]:
    """Return the lines of a pack in their order, and the bytes of its file.

    Args:
        results: sound results, each with its text as it is stored.

    Raises UserError: these are more than `MOST_TEXT`.
    """
    texts = [text for _, text in sorted(results, key=lambda one: _order(one[0]))]
    content = b"".join(shortened(text) + b"\n" for text in texts)
    if len(content) > MOST_TEXT:
        raise UserError(
            f"these {len(texts)} results have {len(content) >> 20} MiB, and a pack may have"
            f" {MOST_TEXT >> 20}; pack them in parts, from several folders."
        )
    return texts, lzma.compress(content, filters=_FILTERS)


def _decompress(path: Path, content: bytes) -> bytes:
    try:
        reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_MEMORY)
        text = reader.decompress(content, max_length=MOST_TEXT + 1)
    except lzma.LZMAError as error:
        raise PackError(path, f"it is no xz file, or a damaged one ({str(error).rstrip('.')})") from error
    if len(text) > MOST_TEXT:
        raise PackError(path, f"it holds more than the {MOST_TEXT >> 20} MiB that are read")
    if not reader.eof:
        raise PackError(path, "it is cut short")
    if reader.unused_data:
        raise PackError(path, "something follows its end")
    return text


def numbered(path: Path, texts: Sequence[bytes]) -> Iterator[Line]:
    """Yield each line of a pack with its place."""
    for number, text in enumerate(texts, 1):
        yield Line(path.with_name(f"{path.name}:{number}"), text)


def lines_by_id(path: Path, texts: Sequence[bytes], set_aside: dict[Path, str]) -> dict[str, Line]:
    """Return the lines of a pack by the ids that they claim.

    Args:
        set_aside: takes the place of each line that does not count, with the reason.
    """
    found = dict[str, Line]()
    for line in numbered(path, texts):
        name = line_id(line.text)
        if name is None:
            set_aside[line.place] = UNREADABLE
        elif name in found:
            set_aside[line.place] = _repeats(found[name])
        else:
            found[name] = line
    return found


def line_id(text: bytes) -> str | None:
    """Return the id that a line claims; None if it claims none.

    It is found without parsing where only one is written. Whoever reads the result still checks it.
    """
    if len(text) > MOST_BYTES:
        return None
    written = _ID.findall(text)
    if len(written) == 1:
        return str(written[0], "ascii")
    try:
        name = read_json(text)["id"]
    except (ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) and _FILE_ID.fullmatch(name) else None


def read_manifest(folder: Path) -> dict[str, Entry]:
    """Return the manifest's entries by the names of packs, the oldest first; none without a manifest.

    Raises PackError: it is damaged. StorageError: the system fails to read it.
    """
    path = folder / MANIFEST
    text = read_file(path)
    if text is None:
        return {}
    if isinstance(text, str):
        raise PackError(path, text)
    try:
        return TypeAdapter(dict[str, Entry]).validate_python(read_json(text), strict=True)
    except (ValueError, ValidationError) as error:
        raise PackError(path, "it is damaged; `linbench results pack` cannot go on without it") from error


def write_pack(folder: Path, name: str, results: Sequence[tuple[Result, bytes]], command: str) -> Path:
    """Write results as a new pack, read it back, and list it in the manifest.

    Args:
        name: the pack's name, without its suffix.
        results: sound results, each with its text as it is stored.
        command: the command that measured them.

    Raises UserError: the name cannot be one, or is taken. StorageError: the pack cannot be written, or is not
    read back as it was written.
    """
    path = folder / f"{name}{SUFFIX}"
    if file_name(name) != name:
        raise UserError(
            f"'{name}' cannot be the name of a pack; use a-z, 0-9, '.', '_' and '-', such as zoo."
        )
    entries = read_manifest(folder)
    if name in entries or path.exists():
        raise UserError(f"there is a pack {path} already, and packs are never changed; choose another name.")
    texts, content = compressed(results)
    with storage_sentence(folder, "cannot write a pack in"):
        write_whole(path, content)
    if read_lines(path) != texts:
        raise PackError(path, "it does not read as it was written")
    write_manifest(folder, entries | {name: describe([one for one, _ in results], content, command)})
    return path


def describe(results: Sequence[Result], content: bytes, command: str) -> Entry:
    """Return what the manifest says of a pack of these results."""
    return {
        "rows": len(results),
        "sha256": hashlib.sha256(content).hexdigest(),
        "devices": sorted({str(identity_of(result)["device"]) for result in results}),
        "commits": sorted({str(result["environment"].get("commit")) for result in results}),
        "command": command,
    }


def write_manifest(folder: Path, entries: Mapping[str, Entry]) -> None:
    """Write the manifest of a folder. Raises StorageError: it cannot be written."""
    text = json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
    with storage_sentence(folder, "cannot write a pack in"):
        write_whole(folder / MANIFEST, text.encode())


def faults(folder: Path) -> list[str]:
    """Return a sentence for everything that is wrong with the packs of a folder; none if all is sound.

    Raises StorageError: the system fails to read one.
    """
    try:
        entries = read_manifest(folder)
    except PackError as damaged:
        entries, sentences = {}, [str(damaged)]
    else:
        sentences = []
    paths = {pack_name(path): path for path in _found(folder)}
    for name in entries.keys() - paths.keys():
        sentences.append(f"{folder / MANIFEST} lists a pack {name}{SUFFIX} that is not there.")
    for name, path in paths.items():
        sentences += _pack_faults(path, entries.get(name))
    return sentences


def _pack_faults(path: Path, entry: Entry | None) -> Iterator[str]:
    if entry is None:
        yield f"{path} is not listed in {MANIFEST}; `linbench results pack {path.parent}` lists it."
    try:
        texts = read_lines(path)
    except PackError as damaged:
        yield str(damaged)
        return
    if entry and entry["sha256"] != hashlib.sha256(path.read_bytes()).hexdigest():
        yield f"{path} is not the file that {MANIFEST} lists: its SHA-256 is another."
    if entry and entry["rows"] != len(texts):
        yield f"{path} has {pluralize(len(texts), 'result')}, and {MANIFEST} says {entry['rows']}."
    first = dict[str, Line]()
    for line in numbered(path, texts):
        name = line_id(line.text)
        if name in first:
            yield f"{line.place} does not count: {_repeats(first[name])}."
        elif reason := _line_fault(line, name):
            yield f"{line.place} does not count: {reason}."
        if name is not None:
            first.setdefault(name, line)


def _line_fault(line: Line, name: str | None) -> str | None:
    if name is None:
        return UNREADABLE
    try:
        found = check_text(line.text, name, line.place)
    except NewerResultError as newer:
        return newer.reason
    return found if isinstance(found, str) else None


def _repeats(first: Line) -> str:
    return f"{first.place.name} has a result of this id already"


def _order(result: Result) -> tuple[str, ...]:
    """Return a sort key that puts similar results next to each other.

    Cells of one purpose and task stand together. That saves a twentieth of a pack of the suite zoo.
    """
    kind, label, whole = str(result.get("kind", CELL)), str(result.get("label", "")), identity_of(result)
    cell = (result["purpose"], canonical(result["cell"]["task"])) if is_cell(result) else ()
    return kind, *cell, label, canonical(whole), str(result["id"])
