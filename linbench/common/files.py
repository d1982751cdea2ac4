"""Files that are there whole or not at all, under names that cannot lead out of their folder."""

import hashlib
import os
import re
import tempfile
from collections.abc import Collection
from pathlib import Path

LEFTOVER = ".writing-"
"""How the names of files begin that a writer was killed over."""

LONGEST = 120
"""Characters of a file's name, at most, without its ending: file systems take 255 bytes."""

_HASHED = re.compile(r"-[0-9a-f]{16}$")
_KEPT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._, -]*[A-Za-z0-9])?")
_OTHERS = re.compile(r"[^a-z0-9._]+")


def write_whole(path: Path, content: bytes) -> None:
    """Write beside `path`, flush to the disk, rename. Raises OSError; nothing is left behind then."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=LEFTOVER)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_named(path: Path, content: bytes) -> None:
    """Write a file that the user has named, whole or not at all; a link there stays one.

    What is no regular file, such as /dev/stdout, cannot be replaced and is written to as it is. Raises OSError.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            file.write(content)
    else:
        write_whole(path.resolve(), content)


def try_named(path: Path) -> None:
    """See that `write_named` can write there; whatever stands there is left as it was. Raises OSError."""
    if path.exists() and not path.is_file():
        path.open("ab").close()
    else:
        with tempfile.NamedTemporaryFile(dir=path.resolve().parent, prefix=LEFTOVER):
            pass


def file_name(text: str) -> str:
    """Return a name for a file, without its ending, that stands for `text`.

    It is made of a-z, 0-9, '.', '_' and '-' alone, begins with none of the last three, and has 1 to `LONGEST` characters. Capital
    letters become small, spaces and commas become '-'; where anything else is replaced, or the end is cut, it ends in a hash of
    the text. So only texts that differ in capitals, spaces, commas and hyphens alone share a name; see `unused`.
    """
    name = _OTHERS.sub("-", text.lower()).strip("-").lstrip("._-")
    if len(name) <= LONGEST and _KEPT.fullmatch(text) and not _HASHED.search(name):
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{name[: LONGEST - 17].rstrip('._-') or 'unnamed'}-{digest}"


def unused(name: str, taken: Collection[str]) -> str:
    """Return `name`, or with a number behind it where it is among those that are `taken`."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file or folder called `name` in `folder`. Raises OSError: a link or the name leads out of it."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise OSError(f"{path} leads out of {folder}")
    return path


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
