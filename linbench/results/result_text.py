"""Reading of stored results: checksum, id and types are checked before anything is trusted.

A text comes from a file of its own or from a line of a pack; both are held to the same rules.
"""

import errno
import hashlib
import re
from pathlib import Path
from typing import Any

from linbench.common.errors import StorageError
from linbench.common.files import MOST_BYTES, UnfitFileError, read_regular, storage_sentence
from linbench.common.hashing import canonical, digest
from linbench.common.reading import read_json
from linbench.experiments.cell import SCHEMA
from linbench.results.schema import Result, misfit

UNREADABLE = "it is torn, altered or not its own"
"""The reason why a text does not count that is not what was written under its id."""

FILE_REFUSALS = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
"""Refusals of the operating system that concern one file, and are no fault of the disk."""

_CHECKSUM = re.compile(rb'"checksum":"([0-9a-f]{64})",')


class NewerResultError(StorageError):
    """A result of a schema that this linbench does not know.

    Whoever would write in its place must not; whoever reads many passes it over.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be used: {reason}.")
        self.place, self.reason = path, reason


def result_text(result: Result) -> bytes:
    """Return a result as it is stored: canonical JSON with its checksum."""
    return canonical({**result, "checksum": digest(result)}).encode()


def read_file(path: Path, most: int = MOST_BYTES) -> bytes | str | None:
    """Read a file that others may have written.

    Returns:
        Its content; None where there is no file; a text, the reason, where it is something that is not read.

    Raises StorageError: the system fails to read it.
    """
    with storage_sentence(path, "cannot read"):
        try:
            return read_regular(path, most)
        except FileNotFoundError:
            return None
        except UnfitFileError as unfit:
            return str(unfit.strerror)
        except OSError as error:
            if error.errno in FILE_REFUSALS:
                return f"it cannot be read: {error.strerror}"
            raise


def check_text(text: bytes, cell_id: str, place: Path) -> Result | str | None:
    """Return the result that a text holds, without its checksum.

    Args:
        place: where the text stands, for messages.

    Returns:
        The result; None where it is of an older schema; a text, the reason, where it does not count.

    Raises NewerResultError: it comes from a newer linbench.
    """
    fields = _parse(text, cell_id)
    if fields is None:
        return UNREADABLE
    schema = fields.get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int):
        return "schema should be a whole number"
    if schema > SCHEMA:
        raise NewerResultError(
            place,
            f"it was written by a newer linbench (schema {schema}, this one knows {SCHEMA}); update linbench",
        )
    if schema < SCHEMA:
        return None
    if reason := misfit(fields):
        return reason
    result: Result = fields
    return result


def _parse(text: bytes, cell_id: str) -> Any:
    """Return the result of that cell without its checksum; None: the text is torn, altered, or another's."""
    try:
        result = read_json(text)
        checksum = result.pop("checksum")
        sound = checksum == (_digest_if_canonical(text) or digest(result)) and result["id"] == cell_id
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return result if sound else None


def _digest_if_canonical(text: bytes) -> str | None:
    """Return the digest of a canonical text without its checksum; None: it is not canonical, or altered.

    To write the result down anew, as `digest` does, would take a third of the time of reading.
    """
    found = _CHECKSUM.search(text)
    if found is None:
        return None
    made = digest_beside_checksum(text, found)
    return made if made.encode() == found[1] else None


def digest_beside_checksum(text: bytes, found: re.Match[bytes]) -> str:
    """Return the SHA-256 of a text without its checksum, which was found there with all its field."""
    return hashlib.sha256(text[: found.start()] + text[found.end() :]).hexdigest()
