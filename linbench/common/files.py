"""Files written whole or not at all, and errors of the operating system in one sentence."""

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
"""The prefix of temporary files. One that is left over belonged to a writer that was killed."""

LONGEST = 120
"""The most characters of a file's name without its ending. File systems allow 255 bytes."""

_HASHED = re.compile(r"-[0-9a-f]{16}$")
_KEPT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._, -]*[A-Za-z0-9])?")
_OTHERS = re.compile(r"[^a-z0-9._]+")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file by writing a temporary one beside it, flushing that to the disk, and renaming it.

    Raises OSError: it cannot be written; nothing is left behind.
    """
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
    """Write a file that the user has named, whole or not at all; a link stays a link.

    Anything but a regular file, such as /dev/stdout, cannot be replaced and is written to directly.

    Raises OSError: it cannot be written.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            file.write(content)
    else:
        write_whole(path.resolve(), content)


def try_named(path: Path) -> None:
    """Check that `write_named` can write there, and change nothing.

    Raises OSError: it cannot.
    """
    if path.exists() and not path.is_file():
        path.open("ab").close()
    else:
        with tempfile.NamedTemporaryFile(dir=path.resolve().parent, prefix=LEFTOVER):
            pass


def file_name(text: str) -> str:
    """Return a name for a file, without its ending, that stands for `text`.

    The name has 1 to `LONGEST` characters among a-z, 0-9, '.', '_' and '-', and begins with a letter or
    digit. Capital letters become small, spaces and commas become '-'. If anything else is replaced or the end
    is cut, the name ends in a hash of the text. So two texts share a name only if they differ in nothing but
    capitals, spaces, commas and hyphens; see `unused`.
    """
    name = _OTHERS.sub("-", text.lower()).strip("-").lstrip("._-")
    if len(name) <= LONGEST and _KEPT.fullmatch(text) and not _HASHED.search(name):
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{name[: LONGEST - 17].rstrip('._-') or 'unnamed'}-{digest}"


def unused(name: str, taken: Collection[str]) -> str:
    """Return `name`, with a number appended if it is `taken`."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def inside(folder: Path, name: str) -> Path:
    """Return the path of `name` in `folder`.

    Raises OSError: a link or the name leads out of the folder.
    """
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
"""The largest file that is read: larger than any result, suite or policy, and small enough for memory."""


class UnfitFileError(OSError):
    """An error of a path that is not a regular file, or one that is too large. `strerror` says which."""


@contextmanager
def open_regular(path: Path, most: int = MOST_BYTES) -> Iterator[BinaryIO]:
    """Open a regular file of at most `most` bytes, or a link to one, for reading.

    A pipe or a device is neither opened nor waited for.

    Raises UnfitFileError: it is something else or larger; OSError: it cannot be read.
    """
    _require_regular(path.stat(), most)
    # it may have become a pipe since, which must not be waited for
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        _require_regular(os.fstat(descriptor), most)
        yield file


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a regular file of at most `most` bytes, or a link to one.

    Raises UnfitFileError: it is something else or larger; OSError: it cannot be read.
    """
    with open_regular(path, most) as file:
        content = file.read(most + 1)  # a file may grow while it is read, and one in /proc has size 0
    if len(content) > most:
        raise _too_large(most)
    return content


def _require_regular(status: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnfitFileError(errno.EINVAL, f"it is {_kind_of(status.st_mode)}, not a file")
    if status.st_size > most:
        raise _too_large(most)


def _kind_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a device or socket"


def _too_large(most: int) -> UnfitFileError:
    return UnfitFileError(errno.EFBIG, f"it is larger than the limit of {most / (1 << 20):,.0f} MiB")


_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota is used up",
    errno.EROFS: "it is read-only",
    errno.EACCES: "permission denied",
    errno.ENOENT: "its folder does not exist",
    errno.EEXIST: "a file of this name is in the way",
    errno.ENOTDIR: "a part of its path is a file",
}
_REMEDIES = {
    errno.ENOSPC: "free some space or ",
    errno.EDQUOT: "free some space or ",
    errno.ENOENT: "create it or ",
    errno.EEXIST: "remove that file or ",
    errno.ENOTDIR: "remove that file or ",
}
"""Remedies beside another folder, by the error."""


@contextmanager
def storage_sentence(path: Path, doing: str, option: str = "--results") -> Iterator[None]:
    """Turn an error of the operating system into a StorageError of one sentence.

    Args:
        path: the file or folder.
        doing: what is done with it, such as "cannot write".
        option: the option by which the user can name another place.

    Raises StorageError: whatever is done inside fails.
    """
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        remedy = _REMEDIES.get(error.errno or 0, "")
        raise StorageError(
            f"{doing} {path}: {reason}; {remedy}choose another folder with {option}."
        ) from error


def folder_below(folder: Path, name: str, option: str = "--save") -> Path:
    """Return the path of `name` in a folder of results.

    Raises StorageError: it is a link that leads out of the folder.
    """
    with storage_sentence(folder, "cannot write into", option):
        return inside(folder, name)


def check_writable(path: Path, doing: str, option: str) -> None:
    """Check that a file can be written before spending time on its content, and change nothing.

    Raises StorageError: it cannot.
    """
    with storage_sentence(path, doing, option):
        try_named(path)


def pictures_folder(page: Path) -> Path:
    """Return the folder for the pictures of a page: its name without the ending."""
    return page.with_suffix("") if page.suffix else page.with_name(f"{page.name}-pictures")
