"""Files written whole or not at all, and the operating system's refusals in one sentence."""

import errno
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from linbench.common.errors import StorageError

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

    What is no regular file, such as /dev/stdout, cannot be replaced and is written to as it is. Raises
    OSError.
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

    It is made of a-z, 0-9, '.', '_' and '-' alone, begins with none of the last three, and has 1 to `LONGEST`
    characters. Capital letters become small, spaces and commas become '-'; where anything else is replaced,
    or the end is cut, it ends in a hash of the text. So only texts that differ in capitals, spaces, commas
    and hyphens alone share a name; see `unused`.
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
    """Return the path of a file or folder called `name` in `folder`. Raises OSError: a link or the name leads
    out of it."""
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


MOST_BYTES = 64 << 20
"""More than any result, suite or policy has, and little enough to be read at once."""


class UnfitFileError(OSError):
    """A path at which there is something that is not read: no regular file, or one that is too large.
    `strerror` says which."""


@contextmanager
def opened(path: Path, most: int = MOST_BYTES) -> Iterator[BinaryIO]:
    """Open a regular file of at most `most` bytes, or a link to one, for reading. A pipe or a device is
    neither opened nor waited for.

    Raises UnfitFileError: it is something else or larger; OSError: it cannot be read.
    """
    _require_regular(path.stat(), most)
    # what stands there may have become a pipe since, and must not be waited for
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        _require_regular(os.fstat(descriptor), most)
        yield file


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a regular file of at most `most` bytes, or a link to one. Raises UnfitFileError and OSError, as
    `opened` does."""
    with opened(path, most) as file:
        content = file.read(most + 1)  # a file may grow while it is read, and one below /proc has no size
    if len(content) > most:
        raise _too_large(most)
    return content


def _require_regular(found: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = (
            "a folder"
            if stat.S_ISDIR(found.st_mode)
            else "a pipe"
            if stat.S_ISFIFO(found.st_mode)
            else "a device or socket"
        )
        raise UnfitFileError(errno.EINVAL, f"it is {kind}, not a file")
    if found.st_size > most:
        raise _too_large(most)


def _too_large(most: int) -> UnfitFileError:
    return UnfitFileError(errno.EFBIG, f"it has more than the {most / (1 << 20):,.0f} MiB that are read")


@contextmanager
def storage_sentence(path: Path, doing: str, option: str = "--results") -> Iterator[None]:
    """The operating system's refusal as one sentence; `option`: by which the user can name another place.
    Raises StorageError."""
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the quota is used up",
        errno.EROFS: "it is read-only",
        errno.EACCES: "permission denied",
    }
    reasons |= {errno.ENOENT: "its folder is not there"}
    try:
        yield
    except OSError as error:
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        remedy = {errno.ENOENT: "make it or ", errno.ENAMETOOLONG: ""}.get(error.errno or 0, "free it or ")
        raise StorageError(
            f"{doing} {path}: {reason}; {remedy}choose another folder with {option}."
        ) from error


def folder_below(folder: Path, name: str, option: str = "--save") -> Path:
    """Return the path of what lies in a folder of results under that name. Raises StorageError: it is a link
    that leads out of it."""
    with storage_sentence(folder, "cannot write into", option):
        return inside(folder, name)


def check_writable(path: Path, doing: str, option: str) -> None:
    """See that a file which will be long in the making can be written; it is left as it was. Raises
    StorageError: it cannot."""
    with storage_sentence(path, doing, option):
        try_named(path)
