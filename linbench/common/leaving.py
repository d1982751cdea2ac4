"""The end of a process that does not wait for what other people's code has left in it."""

import os
import sys
from contextlib import suppress
from typing import NoReturn

_hurried = False


def hurry() -> None:
    """Note that this process has to be left at once, as a library that cannot be closed would hold or end
    it."""
    global _hurried
    _hurried = True


def hurried() -> bool:
    """Return whether that was noted."""
    return _hurried


def leave(code: int) -> NoReturn:
    """End at once with an exit code, when what was printed is written: no thread is waited for, and nothing
    that was registered for the exit runs."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or nobody reads
            stream.flush()
    os._exit(code)
