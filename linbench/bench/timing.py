"""Medians after a warm-up. What is compared is called in turn, so that a change of the machine's mood meets
all alike."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch

from linbench.engine.cuda_graph import WARMUP, Captured, garbage_left
from linbench.engine.workers import one_line

Calls = Mapping[str, Callable[[], Any]]

WARM_UP = 3
_FEWEST, _ENOUGH_SECONDS, _AT_MOST = 5, 4.0, 3
"""Calls, at the fewest, and seconds that are enough of them; so many times as long is too much even for
these."""

_CACHE_BYTES = 1 << 28
"""Several times the last-level cache of any GPU."""


class Spread(NamedTuple):
    """Seconds of a call over so many `calls`: the median, and those that a fifth of them stayed under (low)
    and exceeded (high)."""

    median: float
    low: float
    high: float
    calls: int


class Ceilings(NamedTuple):
    """What the device does at best: bytes per second of a copy, read and written, and operations per second
    of a matrix product."""

    bytes_per_second: float
    flops_per_second: float


def as_called(calls: Calls, *, repeats: int, cuda: bool) -> dict[str, Spread]:
    """Seconds that a caller waits for each until the device is done: of at most `repeats` calls, fewer if
    they take very long.

    On a GPU the cache is overwritten before every call.
    """
    synchronise, scratch = (torch.cuda.synchronize, _scratch()) if cuda else (_nothing, None)
    enough, began = _ENOUGH_SECONDS * len(calls), time.perf_counter()
    for _ in range(WARM_UP):
        for call in calls.values():
            call()
        if time.perf_counter() - began > enough:
            break
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    began = time.perf_counter()
    with garbage_left():
        for i in range(repeats):
            for name, call in calls.items():
                if scratch is not None:
                    scratch.zero_()
                synchronise()
                started = time.perf_counter()
                call()
                synchronise()
                seconds[name].append(time.perf_counter() - started)
            spent = time.perf_counter() - began
            if spent > (enough if i + 1 >= _FEWEST else _AT_MOST * enough):
                break
    return {name: spread(found) for name, found in seconds.items()}


def replayed(calls: Calls, *, repeats: int) -> dict[str, Spread]:
    """Seconds that the GPU alone needs for each, replayed from a CUDA graph, with nothing in its caches.

    The cache is overwritten before every replay; meanwhile the host runs ahead, so that no launch is waited
    for.

    Raises RuntimeError: a call that cannot be captured, in the words of `Captured`.
    """
    graphs = {name: captured(call) for name, call in calls.items()}
    scratch = _scratch()
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    for _ in range(WARM_UP):
        for graph in graphs.values():
            graph.replay()
    torch.cuda.synchronize()
    for _ in range(repeats):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            scratch.zero_()
            begin.record()
            graph.replay()
            end.record()
            events[name].append((begin, end))
    torch.cuda.synchronize()
    return {
        name: spread([begin.elapsed_time(end) / 1e3 for begin, end in found])
        for name, found in events.items()
    }


def replayed_where_possible(calls: Calls, *, repeats: int) -> tuple[dict[str, Spread], dict[str, str]]:
    """As `replayed`; of those that cannot be captured the reason instead."""
    try:
        return replayed(calls, repeats=repeats), {}
    except Exception as error:  # whatever a call does that a graph cannot hold
        if len(calls) == 1:
            return {}, {next(iter(calls)): f"not captured: {one_line(error)}"}
    seconds: dict[str, Spread] = {}
    reasons: dict[str, str] = {}
    for name, call in calls.items():
        alone = replayed_where_possible({name: call}, repeats=repeats)
        seconds |= alone[0]
        reasons |= alone[1]
    return seconds, reasons


def spread(seconds: Sequence[float]) -> Spread:
    """Of at least one."""
    ordered = sorted(seconds)
    fifth = (len(ordered) - 1) // 5
    return Spread(median(ordered), ordered[fifth], ordered[-1 - fifth], len(ordered))


def captured(call: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """The call as a CUDA graph, after a warm-up. Raises RuntimeError: it cannot be one."""
    again = Captured(lambda: _discarded(call), "cuda")
    for _ in range(WARMUP + 1):
        again()
    if again.graph is None:
        raise RuntimeError(again.note)
    return again.graph


def peak_bytes(call: Callable[[], Any]) -> int:
    """GPU memory that the call takes at most beyond what was there before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def ceilings(device: str) -> Ceilings:
    """Measured here and now: a copy of 1 GiB and a bf16 product of 8192 x 8192 matrices; on a CPU 64 MiB, and
    1024 x 1024 in float32."""
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(device)
    source = torch.randn(1 << (28 if cuda else 24), device=device)
    target = torch.empty_like(source)
    width = 8192 if cuda else 1024
    x, y = (
        torch.randn(width, width, device=device, dtype=torch.bfloat16 if cuda else torch.float32)
        for _ in range(2)
    )
    calls = {"copy": lambda: target.copy_(source), "product": lambda: x @ y}
    seconds = as_called(calls, repeats=20, cuda=cuda)
    return Ceilings(2 * source.nbytes / seconds["copy"].low, 2 * width**3 / seconds["product"].low)


def _scratch() -> torch.Tensor:
    """To be overwritten, so that nothing else is left in a GPU's cache."""
    return torch.empty(_CACHE_BYTES, dtype=torch.int8, device="cuda")


def _discarded(call: Callable[[], Any]) -> None:
    """What is captured returns nothing."""
    call()


def _nothing() -> None:
    """A CPU is done when a call returns."""
