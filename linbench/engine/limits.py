"""How many files a run holds open at a time, against the limit of its process."""

import os
from pathlib import Path

from linbench.common.errors import UserError
from linbench.common.text import counted

_SPARE = 24
"""Files beside those of cells and workers: results that are written, a log, libraries that load."""

_OF_A_WORKER = 6
"""A connection, a pipe, and what starting it takes for a moment."""


def require_files(largest: int, places: int) -> None:
    """Let this process hold open the files of so many groups side by side, of at most `largest` cells each:
    one for every claim, and some for a worker.

    Raises UserError: the system does not let it.
    """
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _open_now() + _SPARE + places * (largest + _OF_A_WORKER)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard == resource.RLIM_INFINITY or needed <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return
    fits = (hard - _open_now() - _SPARE) // places - _OF_A_WORKER
    fewer = f"; or train fewer cells together, with --stack {fits}" if fits > 0 else ""
    cells = counted(largest, "cell")
    groups = f"{places} groups of {cells} take" if places > 1 else f"a group of {cells} takes"
    raise UserError(
        f"this process may have {hard} files open, and {groups} {needed}. Allow more with `ulimit -n"
        f" {2 * needed}`{fewer}."
    )


def _open_now() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        if Path(folder).is_dir():
            return len(os.listdir(folder))  # noqa: PTH208 (numbers)
    return 0
