"""The memory of this machine."""

import os
from functools import cache
from pathlib import Path

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where a container's limit stands, by the system's two ways of limiting it."""


@cache
def memory() -> int:
    """Return the bytes of memory that this machine has, or as many as a container may take of it."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([there, *(limit for limit in map(_limit, _LIMITS) if limit)])


def _limit(path: Path) -> int:
    """0: it says none."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0
