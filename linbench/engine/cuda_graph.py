"""Functions that are called again and again: on a GPU captured once, as a CUDA graph, and replayed."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from linbench.common.memory import collection_paused
from linbench.experiments.loading import describe_error

WARMUP = 1
"""Calls before the capture, in which kernels are compiled and libraries set up."""


class CudaGraph:
    """A function that is replayed from a CUDA graph where this is possible.

    It has no arguments and no result, works in place on the same tensors at every call, and never waits for
    the device. If it cannot be captured it is called as it is, and `note` says why.
    """

    def __init__(self, function: Callable[[], None], device: str, *, note: str | None = None) -> None:
        """Take a function for a device. note: the reason why it cannot be captured, if it is known."""
        self.function = function
        self.device = device
        self.note = note
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Call the function, or replay it."""
        if self.graph is None and self.note is None and self.calls >= WARMUP and self.device != "cpu":
            self._capture()
        if self.graph is not None:
            self.graph.replay()
        else:
            self.function()
        self.calls += 1

    def _capture(self) -> None:
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        # torch does not come back to it from a capture that cannot be ended
        current = torch.cuda.current_stream()
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        random_state = generator.clone_state()
        try:
            # an older graph may be garbage, and to destroy it now would break off this capture
            with torch.cuda.stream(current), collection_paused(), torch.cuda.graph(graph, pool=pool):
                self.function()
        except Exception as error:  # a module may do anything that a graph cannot hold
            torch.cuda.synchronize(self.device)
            _release_pool(pool)
            generator.graphsafe_set_state(random_state)  # after a broken capture it would draw no more
            if isinstance(error, torch.OutOfMemoryError):
                raise
            self.note = f"could not be captured: {describe_error(_first(error))}"
        else:
            self.graph = graph


def _release_pool(pool: Any) -> None:
    """Release the memory pool of a broken capture.

    Otherwise torch would go on allocating from it, and give back no cached memory.
    """
    with suppress(RuntimeError):  # torch has done it if the capture could be ended
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        torch._C._cuda_releasePool(torch.cuda.current_device(), pool)


def _first(error: BaseException) -> BaseException:
    """Return the first error: leaving a capture that failed raises another."""
    while error.__context__ is not None:
        error = error.__context__
    return error
