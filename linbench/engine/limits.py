"""The number of files that a run holds open, against the limit of its process."""

import os
from pathlib import Path

from linbench.common.errors import UserError
from linbench.common.text import pluralize

_SPARE = 24
"""Files besides those of cells and workers, by estimate.

They are results being written, a log, and libraries that are loaded.
"""

_FILES_OF_A_WORKER = 6
"""Files of one worker, by estimate: a connection, a pipe, and what starting it takes for a moment."""


def require_files(largest: int, places: int) -> None:
    """Raise this process's limit of open files as far as a run needs.

    A run opens one file for every cell that it claims, and some for every worker.

    Args:
        largest: cells of the largest group.
        places: groups side by side.

    Raises UserError: the system does not allow so many files.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _open_now() + _SPARE + places * (largest + _FILES_OF_A_WORKER)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard == resource.RLIM_INFINITY or needed <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return
    fitting = (hard - _open_now() - _SPARE) // places - _FILES_OF_A_WORKER
    fewer = f"; or train fewer cells together, with --stack {fitting}" if fitting > 0 else ""
    cells = pluralize(largest, "cell")
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
