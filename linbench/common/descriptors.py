"""The three standard descriptors of a process, which whoever starts it may have closed."""

import os
import sys
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


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
