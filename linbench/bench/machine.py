"""Whether the machine was this benchmark's alone, and ran at full speed: what a result is marked by where
not."""

import gc
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from linbench.bench.nvml import _Gpu

BUSY, THROTTLED = "busy", "throttled"
"""Marks: somebody else was at work on the device; its clock was held back."""

OTHERS = 0.15
"""Of a core: what others may take of a CPU meanwhile."""

WORK_SECONDS, _MOST_AT_WORK = 0.1, 200
"""Of a GPU kept at work while its clocks are asked for, and the most calls for it."""

SLOWED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""NVML's reasons for a lower clock that are no choice of a user's: power cap, slowdown by hardware, heat (two
kinds), power brake."""

_STAT = Path("/proc/stat")
_IDLE = (3, 4)
"""Columns of /proc/stat: idle, and waiting for input or output."""


class Moment(NamedTuple):
    """Wall clock, this process's CPU seconds and the machine's, None where these are not known."""

    wall: float
    own: float
    every: float | None


def moment() -> Moment:
    """Now."""
    return Moment(time.perf_counter(), time.process_time(), _busy_seconds())


def give_back(device: str) -> None:
    """Memory of a GPU that this process holds and does not use: graphs that were captured keep theirs until
    Python collects them, and torch keeps it then."""
    if device != "cpu":
        gc.collect()
        torch.cuda.empty_cache()


def keep_at_work(call: Callable[[], Any], seconds: float) -> None:
    """A GPU, for `WORK_SECONDS` more by a call that takes so many: the clocks that `marks` asks for are then
    those of work. It is still under way on return."""
    for _ in range(min(_MOST_AT_WORK, math.ceil(WORK_SECONDS / seconds))):
        call()


def marks(began: Moment, device: str) -> list[str]:
    """Those that a result deserves whose timing began then and ended just now; on a GPU with its last work
    perhaps still under way, so that clocks are those of work. What cannot be found out marks nothing."""
    if device != "cpu":
        return _of_gpu(device)
    return [BUSY] if _others(began, moment()) > OTHERS else []


def _others(began: Moment, ended: Moment) -> float:
    """How many cores others kept busy; where the machine does not say, by how much the load of the last
    minute exceeds this process's threads."""
    if began.every is None or ended.every is None:
        return os.getloadavg()[0] - torch.get_num_threads() if hasattr(os, "getloadavg") else 0.0
    return (ended.every - began.every - (ended.own - began.own)) / max(ended.wall - began.wall, 1e-9)


def _busy_seconds() -> float | None:
    """Of all cores since the machine started; None where there is no telling, or it is told of more cores
    than are ours to use."""
    try:
        first, *rest = _STAT.read_text(encoding="ascii").splitlines()
        if sum(line.startswith("cpu") for line in rest) != len(os.sched_getaffinity(0)):
            return None
        ticks = [int(word) for word in first.split()[1:9]]
        return (sum(ticks) - sum(ticks[i] for i in _IDLE)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _of_gpu(device: str) -> list[str]:
    try:
        gpu = _Gpu(str(torch.cuda.get_device_properties(device).uuid))
    # no library, one without these functions, or a GPU that it does not know
    except (OSError, AttributeError, LookupError):
        return []
    found = [BUSY] if _strangers(gpu.pids()) else []
    return [*found, THROTTLED] if gpu.reasons() & SLOWED else found


def _strangers(pids: list[int]) -> bool:
    """Whether a process on the GPU is neither this one nor the one that started it. Seen from inside a
    container numbers are another system's: then there may be as many as these two."""
    ours = {os.getpid(), os.getppid()}
    return bool(set(pids) - ours) if os.getpid() in pids else len(pids) > len(ours)
