"""Medians of seconds after a warm-up. Calls to be compared take turns, so that all meet the same machine."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch

from linbench.common.memory import collection_paused
from linbench.engine.cuda_graph import WARMUP, CudaGraph
from linbench.engine.workers import one_line

Calls = Mapping[str, Callable[[], Any]]
"""Calls to be compared, by name."""

WARM_UP = 3
"""Calls of each before any is timed."""

_MIN_CALLS, _BUDGET_SECONDS, _MAX_BUDGETS = 5, 4.0, 3
"""Limits of the repetition of a call.

It is repeated until it has taken its budget of seconds, but at least `_MIN_CALLS` times, unless these take
`_MAX_BUDGETS` times the budget.
"""

_CACHE_BYTES = 1 << 28
"""Bytes written between calls: 256 MiB, several times the last-level cache of a GPU (50 MB on an H100)."""


class Spread(NamedTuple):
    """Seconds of a call.

    Args:
        median: median of all calls.
        low: a fifth of the calls took less.
        high: a fifth of the calls took more.
        calls: how many calls there were.
    """

    median: float
    low: float
    high: float
    calls: int


class DevicePeaks(NamedTuple):
    """Peak rates of a device.

    They are bytes per second of a copy, read and written, and operations per second of a matrix product.
    """

    bytes_per_second: float
    flops_per_second: float


def time_as_called(calls: Calls, *, repeats: int, cuda: bool) -> dict[str, Spread]:
    """Measure how long a caller waits for each call until the device is done.

    On a GPU its cache is overwritten before every call.

    Args:
        repeats: most calls of each; fewer if they take very long.
    """
    synchronize, scratch = (torch.cuda.synchronize, _scratch()) if cuda else (_return_at_once, None)
    budget = _BUDGET_SECONDS * len(calls)
    began = time.perf_counter()
    for _ in range(WARM_UP):
        for call in calls.values():
            call()
        if time.perf_counter() - began > budget:
            break
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    began = time.perf_counter()
    with collection_paused():
        for i in range(repeats):
            for name, call in calls.items():
                if scratch is not None:
                    scratch.zero_()
                synchronize()
                started = time.perf_counter()
                call()
                synchronize()
                seconds[name].append(time.perf_counter() - started)
            spent = time.perf_counter() - began
            if spent > (budget if i + 1 >= _MIN_CALLS else _MAX_BUDGETS * budget):
                break
    return {name: summarize(times) for name, times in seconds.items()}


def time_replayed(calls: Calls, *, repeats: int) -> dict[str, Spread]:
    """Measure how long the GPU alone needs for each call, replayed from a CUDA graph, with empty caches.

    Caches are overwritten before every replay. The host runs ahead meanwhile, so that no launch is waited
    for.

    Raises RuntimeError: a call cannot be captured; the message says why.
    """
    graphs = {name: capture_graph(call) for name, call in calls.items()}
    scratch = _scratch()
    new_event: Any = torch.cuda.Event  # its constructor has no types
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    for _ in range(WARM_UP):
        for graph in graphs.values():
            graph.replay()
    torch.cuda.synchronize()
    for _ in range(repeats):
        for name, graph in graphs.items():
            begin, end = new_event(enable_timing=True), new_event(enable_timing=True)
            scratch.zero_()
            begin.record()
            graph.replay()
            end.record()
            events[name].append((begin, end))
    torch.cuda.synchronize()
    return {
        name: summarize([begin.elapsed_time(end) / 1e3 for begin, end in pairs])
        for name, pairs in events.items()
    }


def time_replayed_if_possible(calls: Calls, *, repeats: int) -> tuple[dict[str, Spread], dict[str, str]]:
    """Measure as `time_replayed`; return a reason for each call that cannot be captured."""
    try:
        return time_replayed(calls, repeats=repeats), {}
    except Exception as error:  # a call may do anything that a graph cannot hold
        if len(calls) == 1:
            return {}, {next(iter(calls)): f"not captured: {one_line(error)}"}
    seconds: dict[str, Spread] = {}
    reasons: dict[str, str] = {}
    for name, call in calls.items():
        of_one, reason = time_replayed_if_possible({name: call}, repeats=repeats)
        seconds |= of_one
        reasons |= reason
    return seconds, reasons


def summarize(seconds: Sequence[float]) -> Spread:
    """Return the median and the fifths of at least one duration."""
    ordered = sorted(seconds)
    fifth = (len(ordered) - 1) // 5
    return Spread(median(ordered), ordered[fifth], ordered[-1 - fifth], len(ordered))


def capture_graph(call: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """Capture a call as a CUDA graph, after a warm-up. Raises RuntimeError: it cannot be captured."""
    captured = CudaGraph(lambda: _discard_result(call), "cuda")
    for _ in range(WARMUP + 1):
        captured()
    if captured.graph is None:
        raise RuntimeError(captured.note)
    return captured.graph


def measure_peak_bytes(call: Callable[[], Any]) -> int:
    """Return the most GPU memory that a call takes, beyond what was allocated before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def ceilings(device: str) -> DevicePeaks:
    """Measure the peak rates of a device.

    On a GPU: a copy of 1 GiB and a bf16 product of 8192 x 8192 matrices. On a CPU: a copy of 64 MiB and a
    float32 product of 1024 x 1024 matrices.
    """
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(device)
    source = torch.randn(1 << (28 if cuda else 24), device=device)
    target = torch.empty_like(source)
    width, dtype = (8192, torch.bfloat16) if cuda else (1024, torch.float32)
    x, y = (torch.randn(width, width, device=device, dtype=dtype) for _ in range(2))
    calls = {"copy": lambda: target.copy_(source), "product": lambda: x @ y}
    seconds = time_as_called(calls, repeats=20, cuda=cuda)
    return DevicePeaks(2 * source.nbytes / seconds["copy"].low, 2 * width**3 / seconds["product"].low)


def _scratch() -> torch.Tensor:
    """Return memory that is overwritten between calls, so that a GPU's cache holds nothing of theirs."""
    return torch.empty(_CACHE_BYTES, dtype=torch.int8, device="cuda")


def _discard_result(call: Callable[[], Any]) -> None:
    """Run a call without its result, which a graph would keep alive."""
    call()


def _return_at_once() -> None:
    """Stand in for a GPU's synchronization: a CPU is done when a call returns."""
