"""Files that are there whole or not at all."""

import os
import tempfile
from pathlib import Path

LEFTOVER = ".writing-"
"""How the names of files begin that a writer was killed over."""


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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
