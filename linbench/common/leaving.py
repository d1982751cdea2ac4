"""Ending a process without waiting for threads or exit handlers that other code has left in it."""

import os
import sys
from contextlib import suppress
from typing import NoReturn

_hurried = False


def hurry() -> None:
    """Note that this process must be left at once, because a library that cannot be closed would hold it."""
    global _hurried
    _hurried = True


def hurried() -> bool:
    """Return whether `hurry` was called."""
    return _hurried


def leave(code: int) -> NoReturn:
    """Flush the standard streams and exit at once: no thread is waited for, and no exit handler runs."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or nobody reads
            stream.flush()
    os._exit(code)
