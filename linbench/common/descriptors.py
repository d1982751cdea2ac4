"""The three standard descriptors of a process: whoever starts it may have closed them, and other people's code prints to them."""

import os
import sys
import threading
from typing import Any

_STREAMS = (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w"))


def make_valid() -> None:
    """Open what is closed of the descriptors 0 to 2 on nothing, and give the streams of Python that are missing.

    Without this the next file or pipe gets a number below 3, and is written over by whoever prints.
    """
    for name, number, mode in _STREAMS:
        if _is_open(number):
            continue
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 (as long as the process)


def keep_output() -> None:
    """Keep standard output for what the main thread prints with Python. All else goes to standard error: what libraries, child processes and handlers of the
    exit write to descriptor 1, and what other threads print."""
    sys.stdout.flush()
    ours = open(  # noqa: SIM115, PTH123 (as long as the process)
        os.dup(1), "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, buffering=1 if os.isatty(1) else -1
    )
    os.dup2(2, 1)
    stream: Any = _OfTheMainThread(ours)
    sys.stdout = stream


class _OfTheMainThread:
    """A stream to that thread; to all others it is standard error."""

    def __init__(self, ours: Any) -> None:
        self._ours = ours

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ours if threading.current_thread() is threading.main_thread() else sys.stderr, name)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
