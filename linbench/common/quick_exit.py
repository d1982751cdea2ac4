"""Ending a process without waiting for threads or exit handlers that other code has left in it."""

import os
import sys
from contextlib import suppress
from typing import NoReturn

_required = False


def require_quick_exit() -> None:
    """Note that this process must be left at once, because a library that cannot be closed would hold it."""
    global _required
    _required = True


def needs_quick_exit() -> bool:
    """Return whether `require_quick_exit` was called."""
    return _required


def exit_now(code: int) -> NoReturn:
    """Flush the standard streams and exit at once: no thread is waited for, and no exit handler runs."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or nobody reads
            stream.flush()
    os._exit(code)
