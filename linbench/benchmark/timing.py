"""Medians after a warm-up. What is compared is called in turn, so that a change of the machine's mood meets all alike."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import torch

Calls = Mapping[str, Callable[[], Any]]

WARM_UP = 3
_FEWEST, _ENOUGH_SECONDS = 5, 4.0
_CACHE_BYTES = 1 << 28
"""Several times the last-level cache of any GPU."""


class Ceilings(NamedTuple):
    """What the device does at best: bytes per second of a copy, read and written, and operations per second of a matrix product."""

    bytes_per_second: float
    flops_per_second: float


def as_called(calls: Calls, *, repeats: int, cuda: bool) -> dict[str, float]:
    """Seconds that a caller waits for each until the device is done: the median of at most `repeats`, fewer if they take very long."""
    synchronise = torch.cuda.synchronize if cuda else _nothing
    for _ in range(WARM_UP):
        for call in calls.values():
            call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    began = time.perf_counter()
    with _no_collection():
        for i in range(repeats):
            for name, call in calls.items():
                synchronise()
                started = time.perf_counter()
                call()
                synchronise()
                seconds[name].append(time.perf_counter() - started)
            if i + 1 >= _FEWEST and time.perf_counter() - began > _ENOUGH_SECONDS * len(calls):
                break
    return {name: median(found) for name, found in seconds.items()}


def replayed(calls: Calls, *, repeats: int) -> dict[str, float]:
    """Seconds that the GPU alone needs for each, replayed from a CUDA graph, with nothing in its caches: the median.

    The cache is overwritten before every replay; meanwhile the host runs ahead, so that no launch is waited for.
    """
    graphs = {name: captured(call) for name, call in calls.items()}
    scratch = torch.empty(_CACHE_BYTES, dtype=torch.int8, device="cuda")
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
    return {name: median(begin.elapsed_time(end) for begin, end in found) / 1e3 for name, found in events.items()}


def captured(call: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """The call as a CUDA graph, after a warm-up on a stream of its own."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def peak_bytes(call: Callable[[], Any]) -> int:
    """GPU memory that the call takes at most beyond what was there before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def ceilings(device: str) -> Ceilings:
    """Measured here and now: a copy of 1 GiB and a bf16 product of 8192 x 8192 matrices; on a CPU 64 MiB, and 1024 x 1024 in float32."""
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(device)
    source = torch.randn(1 << (28 if cuda else 24), device=device)
    target = torch.empty_like(source)
    width = 8192 if cuda else 1024
    x, y = (torch.randn(width, width, device=device, dtype=torch.bfloat16 if cuda else torch.float32) for _ in range(2))
    calls = {"copy": lambda: target.copy_(source), "product": lambda: x @ y}
    seconds = as_called(calls, repeats=20, cuda=cuda)
    return Ceilings(2 * source.nbytes / seconds["copy"], 2 * width**3 / seconds["product"])


def _nothing() -> None:
    """A CPU is done when a call returns."""


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's garbage is left lying meanwhile."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
