"""Load and clocks of the machine: whether the benchmark had it alone and at full speed, or gets a mark."""

import gc
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from linbench.bench.nvml import Gpu

BUSY, THROTTLED = "busy", "throttled"
"""Marks of a result: another process was at work on the device; the device's clock was held back."""

MAX_OTHER_LOAD = 0.15
"""Cores that others may keep busy on a CPU before a result is marked, a limit by choice."""

LOAD_SECONDS, MAX_LOAD_CALLS = 0.1, 200
"""Time for which a GPU is kept at work while its clocks are read, and the most calls for it."""

THROTTLE_REASONS = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""NVML's bits for a lower clock that no user asked for.

They are: power cap, slowdown by hardware, heat by software and by hardware, power brake.
"""

_STAT = Path("/proc/stat")
_IDLE_COLUMNS = (3, 4)
"""Columns of /proc/stat: idle, and waiting for input or output."""


class LoadSample(NamedTuple):
    """Load at one moment, in seconds.

    Args:
        wall: wall clock.
        own: CPU time of this process.
        all_cores: CPU time of all processes; None if it is not known.
    """

    wall: float
    own: float
    all_cores: float | None


def sample_load() -> LoadSample:
    """Read the clocks that `marks` compares."""
    return LoadSample(time.perf_counter(), time.process_time(), _busy_seconds())


def release_memory(device: str) -> None:
    """Return unused memory of a GPU to the driver.

    Captured graphs keep theirs until Python collects them, and torch keeps it after that.
    """
    if device != "cpu":
        gc.collect()
        torch.cuda.empty_cache()


def hold_load(call: Callable[[], Any], seconds: float) -> None:
    """Keep a GPU at work for `LOAD_SECONDS` more, so that `marks` reads the clocks of work.

    Work is still under way on return.

    Args:
        seconds: how long one call takes.
    """
    for _ in range(min(MAX_LOAD_CALLS, math.ceil(LOAD_SECONDS / seconds))):
        call()


def marks(began: LoadSample, device: str) -> list[str]:
    """Return the marks of a result that was timed from `began` until now.

    On a GPU the last work may still be under way. What cannot be found out gives no mark.
    """
    if device != "cpu":
        return _gpu_marks(device)
    return [BUSY] if _other_load(began, sample_load()) > MAX_OTHER_LOAD else []


def _other_load(began: LoadSample, ended: LoadSample) -> float:
    """Return how many cores others kept busy.

    If the machine does not say, this is the load of the last minute less this process's threads.
    """
    if began.all_cores is None or ended.all_cores is None:
        return os.getloadavg()[0] - torch.get_num_threads() if hasattr(os, "getloadavg") else 0.0
    others = (ended.all_cores - began.all_cores) - (ended.own - began.own)
    return others / max(ended.wall - began.wall, 1e-9)


def _busy_seconds() -> float | None:
    """Return the busy CPU seconds of all cores since boot.

    None if they are unknown, or are those of a host with more cores than this process may use.
    """
    try:
        first, *rest = _STAT.read_text(encoding="ascii").splitlines()
        if sum(line.startswith("cpu") for line in rest) != len(os.sched_getaffinity(0)):
            return None
        ticks = [int(word) for word in first.split()[1:9]]
        idle = sum(ticks[column] for column in _IDLE_COLUMNS)
        return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _gpu_marks(device: str) -> list[str]:
    try:
        gpu = Gpu(str(torch.cuda.get_device_properties(device).uuid))
    # no library, one without these functions, or a GPU that it does not know
    except (OSError, AttributeError, LookupError):
        return []
    found_marks = [BUSY] if _has_strangers(gpu.process_ids()) else []
    return [*found_marks, THROTTLED] if gpu.clock_reasons() & THROTTLE_REASONS else found_marks


def _has_strangers(process_ids: list[int]) -> bool:
    """Return whether a process on the GPU is neither this one nor its parent.

    Inside a container the numbers are the host's: then there may be as many processes as these two.
    """
    ours = {os.getpid(), os.getppid()}
    if os.getpid() in process_ids:
        return bool(set(process_ids) - ours)
    return len(process_ids) > len(ours)
