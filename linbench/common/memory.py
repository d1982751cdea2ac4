"""The memory of this machine, how much of it processes use, and Python's collection of it."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

_GIB = 1 << 30
_LEAST_SHARE, _LEAST_BYTES = 0.05, 2 * _GIB
"""The least memory that must be left, as a share and, if that is less, in bytes.

Below it the system is about to kill processes of its own choice.
"""

_LARGE_SHARE = 0.2
"""A worker that uses less than this share of the memory is not the reason why it is full."""

_LIMITS = (
    (
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory.current",
        "/sys/fs/cgroup/memory.stat",
        "inactive_file",
    ),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
        "total_inactive_file",
    ),
)
"""The kernel's files about a container's memory, in version 2 and 1 of control groups.

For each: the limit, the use, statistics, and the line there that counts the cache of files, which can be
freed.
"""


class Memory(NamedTuple):
    """Bytes of memory: in all, and available."""

    total: int
    available: int

    @property
    def short(self) -> bool:
        """True if hardly any memory is left."""
        return self.available < min(_LEAST_SHARE * self.total, _LEAST_BYTES)

    def taken_largely(self, used: int) -> bool:
        """Return whether using that many bytes is a reason for the shortage."""
        return used >= _LARGE_SHARE * self.total


def memory() -> Memory | None:
    """Return the memory of this machine or container; None if the system does not tell (macOS)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        numbers = {
            name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)
        }
        machine = Memory(numbers["MemTotal"], numbers["MemAvailable"])
    except (OSError, ValueError, KeyError, IndexError):
        return None
    container = _container()
    return machine if container is None else min(machine, container, key=lambda place: place.available)


@cache
def total_memory() -> int:
    """Return the bytes of memory of this machine, or the limit of its container if that is less."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    container = _container()
    return machine if container is None else min(machine, container.total)


def _container() -> Memory | None:
    """Return the memory of the container; None if it has no limit."""
    for limit, use, statistics, inactive in _LIMITS:
        try:
            total = int(Path(limit).read_text(encoding="ascii"))
            used = int(Path(use).read_text(encoding="ascii"))
            rows = dict(line.split() for line in Path(statistics).read_text(encoding="ascii").splitlines())
            return Memory(total, total - used + int(rows[inactive]))
        except (OSError, ValueError, KeyError):  # not this version, or "max"
            continue
    return None


def resident_bytes(pids: list[int]) -> int:
    """Return the bytes of memory that these processes use; ended ones use none."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def in_gib(size: int) -> str:
    """Return a size such as `3.2 GiB`."""
    return f"{size / _GIB:,.1f} GiB"


@contextmanager
def collection_paused() -> Iterator[None]:
    """Switch Python's garbage collection off within."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def collect_rarely() -> None:
    """Make Python's garbage collection rare. To import torch makes objects for hundreds of collections."""
    gc.set_threshold(100_000)
