"""Work that is the same again and again: on a GPU captured once, as a CUDA graph, and replayed."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from linbench.experiments.loading import theirs

WARMUP = 2
"""Calls before the capture: kernels are compiled and libraries set up in them."""


class Captured:
    """A function without arguments or result, which works on the same tensors in place at every call and
    never waits for the device.

    Where it cannot be captured it is called as it is, and `note` says why.
    """

    def __init__(self, function: Callable[[], None], device: str, *, note: str | None = None) -> None:
        """`note`: why it cannot be captured, where that is known."""
        self.function = function
        self.device = device
        self.note = note
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Once more."""
        if self.graph is None and self.note is None and self.calls >= WARMUP and self.device != "cpu":
            self._capture()
        if self.graph is not None:
            self.graph.replay()
        else:
            self.function()
        self.calls += 1

    def _capture(self) -> None:
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        # to which torch does not come back from a capture that cannot be ended
        current = torch.cuda.current_stream()
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        random_state = generator.clone_state()
        try:
            # An older graph may be garbage, and to destroy it now would break off the capture of this one.
            with torch.cuda.stream(current), garbage_left(), torch.cuda.graph(graph, pool=pool):
                self.function()
        except Exception as error:  # whatever a module does that a graph cannot hold
            torch.cuda.synchronize(self.device)
            _given_up(pool)
            generator.graphsafe_set_state(random_state)  # that of a capture broken off draws no more
            if isinstance(error, torch.OutOfMemoryError):
                raise
            self.note = f"could not be captured: {theirs(_first(error))}"
        else:
            self.graph = graph


@contextmanager
def garbage_left() -> Iterator[None]:
    """Python does not collect it meanwhile."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _given_up(pool: Any) -> None:
    """End what a capture that was broken off began: torch would take memory for it ever after, and give back
    none that is cached any more."""
    with suppress(RuntimeError):  # torch did it, where the capture could be ended
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        torch._C._cuda_releasePool(torch.cuda.current_device(), pool)


def _first(error: BaseException) -> BaseException:
    """What went wrong first: leaving a capture that failed raises once more."""
    while error.__context__ is not None:
        error = error.__context__
    return error
